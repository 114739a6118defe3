use super::frame::SEGMENT_HEADER_BYTES;
use super::{FileLog, FileLogOptions, Log, ObjectLog, ObjectLogOptions, Recovery, open_log};
use crate::disk::{Disk, DiskFault, SimDisk};
use crate::name::ObjectName;
use crate::objects::{MemoryObjects, ObjectStorage, PutMode};
use forebay_base::ErrorKind;
use std::sync::Arc;

/// A frame may be written although its writer is told that the disk is full. What it has then comes once, from the next segment.
#[test]
fn a_frame_that_was_refused_and_written_all_the_same_does_not_count() {
    let disk = Arc::new(SimDisk::new());
    let name = ObjectName::new("log").unwrap();
    let options = FileLogOptions { segment_bytes: 400, reserve_bytes: 400 };
    let log = FileLog::create(Arc::clone(&disk) as Arc<dyn Disk>, &name, 7, options).unwrap();
    let end = log.append(0, 1, &[1; 100]).unwrap();
    log.sync(end).unwrap();
    disk.fail_at(disk.steps(), DiskFault::Reported(ErrorKind::Full));
    assert_eq!(log.append(0, 2, &[2; 100]).unwrap_err().kind(), ErrorKind::Full);
    // This one does not fit there, so it begins the next segment.
    let end = log.append(0, 3, &[3; 250]).unwrap();
    log.sync(end).unwrap();
    let objects: Arc<dyn ObjectStorage> = Arc::new(MemoryObjects::new());
    let disk: Arc<dyn Disk> = disk;
    for recovery in [Recovery::Look, Recovery::Seal] {
        let reader = open_log(&objects, Some(&disk), &name, recovery).unwrap();
        let marks: Vec<_> = reader.frames().unwrap().iter().map(|frame| frame.mark).collect();
        assert_eq!((marks, reader.segments()), (vec![1, 3], 2));
    }
}

/// Who looks reads the first frame before it is written, and the second one when that says that the first is durable.
#[test]
fn what_is_written_while_somebody_looks_is_no_damage() {
    let disk = SimDisk::new();
    let name = ObjectName::new("log").unwrap();
    let log = FileLog::create(Arc::new(disk.handle()), &name, 7, FileLogOptions::default()).unwrap();
    for mark in 1..3 {
        let end = log.append(0, mark, &[1; 100]).unwrap();
        log.sync(end).unwrap();
    }
    let objects: Arc<dyn ObjectStorage> = Arc::new(MemoryObjects::new());
    let look = |handle: &SimDisk| {
        let handle: Arc<dyn Disk> = Arc::new(handle.clone());
        open_log(&objects, Some(&handle), &name, Recovery::Look).and_then(|reader| reader.frames())
    };
    let first = disk.handle();
    assert_eq!(look(&first).unwrap().len(), 2);

    // What a reader finds that was too early for the first frame.
    let flip = |disk: &SimDisk| disk.flip("log/00000000000000000001.log", SEGMENT_HEADER_BYTES as u64 + 60, 1).unwrap();
    flip(&disk);
    assert_eq!(look(&disk.handle()).unwrap_err().kind(), ErrorKind::Corrupt);
    // Once the segment is read, only the others are listed.
    let (handle, writer) = (disk.handle(), disk.clone());
    handle.interrupt_at(first.steps() - 1, move || flip(&writer));
    assert_eq!(look(&handle).unwrap().len(), 2);
}

/// A copy of a segment under the next number.
#[test]
fn a_segment_that_is_another_one_ends_the_recovery_of_a_log() {
    let objects: Arc<dyn ObjectStorage> = Arc::new(MemoryObjects::new());
    let name = ObjectName::new("log").unwrap();
    let log = ObjectLog::create(Arc::clone(&objects), &name, 7, ObjectLogOptions::default()).unwrap();
    for mark in 1..3 {
        let end = log.append(0, mark, &[1; 100]).unwrap();
        log.sync(end).unwrap();
    }
    let second = objects.get(&name.numbered(2).unwrap()).unwrap();
    objects.put(&name.numbered(3).unwrap(), second, PutMode::IfAbsent).unwrap();
    let opened = open_log(&objects, None, &name, Recovery::Seal);
    assert_eq!(opened.map(drop).unwrap_err().kind(), ErrorKind::Corrupt);
}
