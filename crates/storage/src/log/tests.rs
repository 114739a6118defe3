use super::frame::SEGMENT_HEADER_BYTES;
use super::{FileLog, FileLogOptions, Log, ObjectLog, ObjectLogOptions, Recovery, check_log, open_log, rescue_log};
use crate::disk::{Disk, DiskFault, SimDisk};
use crate::error::Result;
use crate::name::ObjectName;
use crate::objects::{MemoryObjects, ObjectFault, ObjectStorage, PutMode};
use crate::options::StorageOptions;
use crate::store::Storage;
use forebay_base::{ErrorKind, checksum};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// A log whose segments hold two frames of 100 bytes or one of 250.
fn short_segments() -> (Arc<SimDisk>, ObjectName, FileLog) {
    let (disk, name) = (Arc::new(SimDisk::new()), ObjectName::new("log").unwrap());
    let options = FileLogOptions { segment_bytes: 400, reserve_bytes: 400 };
    let log = FileLog::create(Arc::clone(&disk) as Arc<dyn Disk>, &name, 7, options).unwrap();
    (disk, name, log)
}

/// Opens a log in files. Returns the marks of its frames, and how many segments it has.
fn found(disk: Arc<SimDisk>, name: &ObjectName, recovery: Recovery) -> (Vec<u64>, usize) {
    let objects: Arc<dyn ObjectStorage> = Arc::new(MemoryObjects::new());
    let disk: Arc<dyn Disk> = disk;
    let reader = open_log(&objects, Some(&disk), name, recovery).unwrap();
    let marks = reader.frames().unwrap().iter().map(|frame| frame.mark).collect();
    (marks, reader.segments())
}

/// A frame may be written although its writer is told that the disk is full. Then its content occurs once, from the next
/// segment.
#[test]
fn a_frame_that_was_refused_and_written_all_the_same_does_not_count() {
    let (disk, name, log) = short_segments();
    let end = log.append(0, 1, &[1; 100]).unwrap();
    log.sync(end).unwrap();
    disk.fail_at(disk.steps(), DiskFault::Reported(ErrorKind::Full));
    assert_eq!(log.append(0, 2, &[2; 100]).unwrap_err().kind(), ErrorKind::Full);
    // This frame does not fit there, so it begins the next segment.
    let end = log.append(0, 3, &[3; 250]).unwrap();
    log.sync(end).unwrap();
    for recovery in [Recovery::Look, Recovery::Seal] {
        assert_eq!(found(Arc::clone(&disk), &name, recovery), (vec![1, 3], 2));
    }
}

/// A file normally grows by much at a time. On a disk without room for that, it grows only as much as needed.
#[test]
fn a_disk_that_is_nearly_full_takes_what_fits() {
    let options = FileLogOptions { segment_bytes: 4096, reserve_bytes: 512 };
    // The first steps of an append that finds no room reserved are reservations: twice the length, a step, and the least.
    for full in 0..4 {
        let disk = Arc::new(SimDisk::new());
        let name = ObjectName::new("log").unwrap();
        let log = FileLog::create(Arc::clone(&disk) as Arc<dyn Disk>, &name, 7, options).unwrap();
        let end = log.append(0, 1, &[1; 400]).unwrap();
        log.sync(end).unwrap();
        let before = disk.steps();
        (before..before + full).for_each(|step| disk.fail_at(step, DiskFault::Refused(ErrorKind::Full)));
        let appended = log.append(0, 2, &[2; 200]);
        assert_eq!(appended.as_ref().err().map(|error| error.kind()), (full == 3).then_some(ErrorKind::Full), "{full}");
        let end = log.append(0, 3, &[3; 300]).unwrap();
        log.sync(end).unwrap();
        let disk: Arc<dyn Disk> = disk;
        let objects: Arc<dyn ObjectStorage> = Arc::new(MemoryObjects::new());
        let reader = open_log(&objects, Some(&disk), &name, Recovery::Seal).unwrap();
        let marks: Vec<_> = reader.frames().unwrap().iter().map(|frame| frame.mark).collect();
        assert_eq!(marks, if full == 3 { vec![1, 3] } else { vec![1, 2, 3] }, "{full}");
    }
}

/// The next segment cannot be created: nothing is lost, and the next frame tries again. A sync that failed is not tried again.
#[test]
fn a_log_goes_on_once_its_next_segment_can_be_created() {
    let mut went_on = Vec::new();
    for step in 0..8 {
        let (disk, name, log) = short_segments();
        log.append(0, 1, &[1; 250]).unwrap();
        disk.fail_at(disk.steps() + step, DiskFault::Refused(ErrorKind::AccessDenied));
        assert_eq!(log.append(0, 2, &[2; 250]).unwrap_err().kind(), ErrorKind::AccessDenied, "step {step}");
        if let Some(error) = log.failure() {
            assert_eq!(error.kind(), ErrorKind::Closed, "step {step}");
            assert_eq!(log.append(0, 3, &[3; 250]).unwrap_err().kind(), ErrorKind::Closed, "step {step}");
            continue;
        }
        went_on.push(step);
        let end = log.append(0, 3, &[3; 250]).unwrap();
        log.sync(end).unwrap();
        assert_eq!(found(disk, &name, Recovery::Seal), (vec![1, 3], 2), "step {step}");
    }
    // The steps that create the segment, make room, and write its header.
    assert_eq!(went_on, [1, 2, 3]);
}

/// While a thread syncs the log, another one needs more room, and its sync loses what both cover. A disk reports that once.
#[test]
fn a_sync_after_one_that_failed_acknowledges_nothing() {
    let (disk, name) = (Arc::new(SimDisk::new()), ObjectName::new("log").unwrap());
    let options = FileLogOptions { segment_bytes: 4096, reserve_bytes: 512 };
    let log = Arc::new(FileLog::create(Arc::clone(&disk) as Arc<dyn Disk>, &name, 7, options).unwrap());
    let end = log.append(0, 1, &[1; 100]).unwrap();
    let (sync, other) = (disk.steps(), Arc::clone(&log));
    // The append reserves room, and syncs.
    disk.fail_at(sync + 2, DiskFault::Lost);
    disk.interrupt_at(sync, move || {
        assert_eq!(other.append(0, 2, &[2; 500]).unwrap_err().kind(), ErrorKind::Io);
    });
    assert_eq!(log.sync(end).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!((log.durable(), log.failure().map(|error| error.kind())), (0, Some(ErrorKind::Closed)));
    disk.lose_power(&mut forebay_env::Random::seeded(1));
    assert_eq!(found(disk, &name, Recovery::Seal), (vec![], 1));
}

/// The last file descriptor goes to the next segment, and none is left to sync the folder.
#[test]
fn a_log_goes_on_once_its_folder_can_be_opened() {
    let (disk, name, log) = short_segments();
    log.append(0, 1, &[1; 250]).unwrap();
    // The steps before sync the full segment, create the next one, make room, write its header, and sync it.
    disk.fail_at(disk.steps() + 5, DiskFault::NotOpened(ErrorKind::Io));
    assert_eq!(log.append(0, 2, &[2; 250]).unwrap_err().kind(), ErrorKind::Io);
    assert!(log.failure().is_none());
    let end = log.append(0, 3, &[3; 250]).unwrap();
    log.sync(end).unwrap();
    assert_eq!(found(disk, &name, Recovery::Seal), (vec![1, 3], 2));
}

/// The last group looks torn when a read returns a wrong bit of it. A second read finds it whole.
#[test]
fn one_read_that_is_wrong_cuts_nothing_of_a_log() {
    let name = ObjectName::new("log").unwrap();
    let path = "log/00000000000000000001.log";
    let mut damaged = 0;
    for reads in 0..6 {
        let disk = SimDisk::new();
        let log = FileLog::create(Arc::new(disk.handle()), &name, 7, FileLogOptions::default()).unwrap();
        for mark in 1..3 {
            let end = log.append(0, mark, &[1; 100]).unwrap();
            log.sync(end).unwrap();
        }
        // A bit in the second frame.
        let bit = 8 * (SEGMENT_HEADER_BYTES as u64 + 160 + 80);
        let opener = disk.handle();
        opener.rot_read(reads, bit);
        let handle: Arc<dyn Disk> = Arc::new(opener.clone());
        let objects: Arc<dyn ObjectStorage> = Arc::new(MemoryObjects::new());
        let reader = open_log(&objects, Some(&handle), &name, Recovery::Seal).unwrap();
        let marks: Vec<_> = reader.frames().unwrap().iter().map(|frame| frame.mark).collect();
        assert!(marks == [1, 2] && reader.cut().is_none(), "read {reads}: {marks:?}, {:?}", reader.cut());
        damaged += opener.rotten_reads().iter().filter(|read| *read == path).count();
    }
    assert!(damaged > 0);
}

/// A log without a frame looks as if it had never begun when a read returns a wrong bit of its header. A second read finds
/// the log.
#[test]
fn one_read_that_is_wrong_does_not_hide_the_begin_of_a_log() {
    let name = ObjectName::new("log").unwrap();
    let objects: Arc<dyn ObjectStorage> = Arc::new(MemoryObjects::new());
    for recovery in [Recovery::Look, Recovery::Seal] {
        let mut damaged = 0;
        for reads in 0..6 {
            let disk = SimDisk::new();
            FileLog::create(Arc::new(disk.handle()), &name, 7, FileLogOptions::default()).unwrap();
            let opener = disk.handle();
            opener.rot_read(reads, 8);
            let handle: Arc<dyn Disk> = Arc::new(opener.clone());
            let reader = open_log(&objects, Some(&handle), &name, recovery).unwrap();
            assert!(reader.segments() == 1 && reader.bad_begin().is_none(), "read {reads}: {:?}", reader.bad_begin());
            damaged += opener.rotten_reads().len();
        }
        assert!(damaged > 0, "{recovery:?}");
    }
}

/// Nobody knows what a sync has done that panicked. Nobody waits for it, and none that comes later succeeds.
#[test]
fn a_log_whose_sync_panics_fails_from_then_on() {
    let (disk, name, in_files) = short_segments();
    let objects = MemoryObjects::new();
    let in_objects = ObjectLog::create(Arc::new(objects.clone()), &name, 7, ObjectLogOptions::default()).unwrap();
    disk.interrupt_at(disk.steps() + 1, || panic!("planted"));
    objects.interrupt_at(objects.steps(), || panic!("planted"));
    for log in [&in_files as &dyn Log, &in_objects] {
        let end = log.append(0, 1, &[1; 100]).unwrap();
        assert!(std::panic::catch_unwind(AssertUnwindSafe(|| log.sync(end))).is_err());
        assert_eq!(log.sync(end).unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(log.append(0, 2, &[2; 100]).unwrap_err().kind(), ErrorKind::Io);
        assert!(log.failure().is_some() && log.durable() == 0);
    }
}

/// A put whose reply was lost is made again, and the writer reads what it put.
#[test]
fn a_segment_that_reads_damaged_does_not_fence_its_writer() {
    for bit in [8, 8 * (SEGMENT_HEADER_BYTES as u64 + 60)] {
        let objects = MemoryObjects::new();
        let name = ObjectName::new("log").unwrap();
        let log = ObjectLog::create(Arc::new(objects.clone()), &name, 7, ObjectLogOptions::default()).unwrap();
        let end = log.append(0, 1, &[1; 100]).unwrap();
        objects.fail_at(objects.steps(), ObjectFault::ReplyLost);
        assert_eq!(log.sync(end).unwrap_err().kind(), ErrorKind::TimedOut);
        objects.rot_read(0, bit);
        assert_eq!(log.sync(end).unwrap_err().kind(), ErrorKind::Corrupt);
        log.sync(end).unwrap();
        assert!(log.failure().is_none());
    }
}

/// A reader with `Recovery::Look` reads the first frame before it is written, and the second frame when that says that
/// the first is durable.
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

    // This is what a reader finds that came too early for the first frame.
    let flip = |disk: &SimDisk| disk.flip("log/00000000000000000001.log", SEGMENT_HEADER_BYTES as u64 + 60, 1).unwrap();
    flip(&disk);
    assert_eq!(look(&disk.handle()).unwrap_err().kind(), ErrorKind::Corrupt);
    // Once the segment is read, only the others are listed.
    let (handle, writer) = (disk.handle(), disk.clone());
    handle.interrupt_at(first.steps() - 1, move || flip(&writer));
    assert_eq!(look(&handle).unwrap().len(), 2);
}

/// At each step of whoever opens a log, its writer begins another segment, and trims all before it.
#[test]
fn what_is_trimmed_while_a_log_is_opened_is_no_damage() {
    let objects: Arc<dyn ObjectStorage> = Arc::new(MemoryObjects::new());
    for recovery in [Recovery::Look, Recovery::Seal] {
        for step in 0.. {
            let (disk, name, log) = short_segments();
            let append = |log: &FileLog, mark| log.append(0, mark, &[1; 250]).unwrap();
            let end = (0..5).fold(0, |_, mark| append(&log, mark));
            log.sync(end).unwrap();
            let opener = disk.handle();
            opener.interrupt_at(step, move || {
                let last = append(&log, 5);
                // It may be fenced by now.
                let _synced = log.sync(last);
                assert_eq!(log.trim(end).unwrap(), 5);
            });
            let handle: Arc<dyn Disk> = Arc::new(opener.clone());
            let reader = open_log(&objects, Some(&handle), &name, recovery).unwrap();
            if opener.steps() <= step {
                assert!(step > 5, "{recovery:?}: {step} steps");
                break;
            }
            let marks: Vec<_> = reader.frames().unwrap().iter().map(|frame| frame.mark).collect();
            assert!(marks == [4] || marks == [5], "{recovery:?}, step {step}: {marks:?}");
        }
    }
}

/// At each step of whoever looks at what is left of a log, its writer trims it.
#[test]
fn what_is_trimmed_while_somebody_looks_is_passed_over() {
    let objects: Arc<dyn ObjectStorage> = Arc::new(MemoryObjects::new());
    for step in 0.. {
        let (disk, name, log) = short_segments();
        let end = (0..3).fold(0, |_, mark| log.append(0, mark, &[1; 250]).unwrap());
        log.sync(end).unwrap();
        let looker = disk.handle();
        looker.interrupt_at(step, move || assert_eq!(log.trim(end).unwrap(), 2));
        let handle: Arc<dyn Disk> = Arc::new(looker.clone());
        let rescued = rescue_log(&objects, Some(&handle), &name).unwrap();
        if looker.steps() <= step {
            assert!(step > 5, "{step} steps");
            break;
        }
        assert!(rescued.iter().all(|part| part.damage.is_none()), "step {step}: {rescued:?}");
        let marks: Vec<_> = rescued.iter().flat_map(|part| &part.frames).map(|frame| frame.mark).collect();
        assert!(marks.ends_with(&[2]), "step {step}: {marks:?}");
    }
}

/// Makes a log in files of several segments, whose contents are all durable.
fn log_of_segments(disk: &SimDisk, name: &ObjectName) {
    let options = FileLogOptions { segment_bytes: 2048, reserve_bytes: 512 };
    let log = FileLog::create(Arc::new(disk.handle()), name, 7, options).unwrap();
    for mark in 0..70 {
        let end = log.append(0, mark, &[1; 60]).unwrap();
        log.sync(end).unwrap();
    }
    assert_eq!(log.segments(), 5);
}

/// Files at the end of a log are missing, or shorter than they were, down to nothing: everything is read, or damage is
/// found.
#[test]
fn what_is_missing_at_the_end_of_a_log_in_files_is_noticed() {
    let whole = SimDisk::new();
    let name = ObjectName::new("log").unwrap();
    log_of_segments(&whole, &name);
    let objects: Arc<dyn ObjectStorage> = Arc::new(MemoryObjects::new());
    let path = |number: u64| format!("log/{number:020}.log");
    let length = |disk: &SimDisk, path: &str| disk.open(path, false).unwrap().length().unwrap();
    // Returns what recovery finds of a log after `harm`: how many frames, or an error.
    let read = |harm: &dyn Fn(&SimDisk)| {
        [Recovery::Look, Recovery::Seal].map(|recovery| {
            let disk = whole.duplicate();
            harm(&disk);
            let disk: Arc<dyn Disk> = Arc::new(disk);
            let frames = open_log(&objects, Some(&disk), &name, recovery).and_then(|reader| reader.frames());
            frames.map(|frames| frames.len()).map_err(|error| error.kind())
        })
    };
    assert_eq!(read(&|_| ()), [Ok(70); 2]);
    for missing in 1..5 {
        let last: Vec<_> = (6 - missing..6).map(path).collect();
        let found = read(&|disk| last.iter().for_each(|path| disk.remove(path).unwrap()));
        assert_eq!(found, [Err(ErrorKind::Corrupt); 2], "{last:?} are missing");
    }
    let whole_length = length(&whole, &path(5));
    let mut whole_reads = 0;
    for length in 0..whole_length {
        let found = read(&|disk| disk.open(&path(5), true).unwrap().truncate(length).unwrap());
        assert!(found == [Ok(70); 2] || found == [Err(ErrorKind::Corrupt); 2], "cut to {length} bytes: {found:?}");
        whole_reads += usize::from(found[0].is_ok());
    }
    // Reads are whole where the cut takes only reserved room.
    assert!(whole_reads > 0 && whole_reads < 512, "{whole_reads} of {whole_length} lengths");
}

/// The last segment has begun, and its frames were lost to a power failure. Its header is damaged, or it is cut off: the error
/// names it, and not the segment before it, which is whole.
#[test]
fn a_segment_that_had_begun_is_named_when_its_header_is_damaged() {
    let (disk, name, log) = short_segments();
    for mark in 1..3 {
        log.append(0, mark, &[1; 250]).unwrap();
    }
    let (objects, last): (Arc<dyn ObjectStorage>, _) = (Arc::new(MemoryObjects::new()), "log/00000000000000000002.log");
    // What the power failure leaves.
    let file = disk.open(last, true).unwrap();
    let room = file.length().unwrap() as usize - SEGMENT_HEADER_BYTES;
    file.write_at(SEGMENT_HEADER_BYTES as u64, &vec![0; room]).unwrap();
    assert_eq!(found(Arc::clone(&disk), &name, Recovery::Look), (vec![1], 2));
    let harms: [&dyn Fn(&SimDisk); 4] = [
        &|disk| disk.flip(last, 1, 1).unwrap(),
        &|disk| disk.flip(last, 20, 4).unwrap(),
        &|disk| disk.open(last, true).unwrap().truncate(SEGMENT_HEADER_BYTES as u64).unwrap(),
        &|disk| disk.open(last, true).unwrap().truncate(0).unwrap(),
    ];
    for (number, harm) in harms.iter().enumerate() {
        let damaged = disk.duplicate();
        harm(&damaged);
        let damaged: Arc<dyn Disk> = Arc::new(damaged);
        for recovery in [Recovery::Look, Recovery::Seal] {
            let error = open_log(&objects, Some(&damaged), &name, recovery).unwrap_err();
            assert_eq!((error.kind(), error.object()), (ErrorKind::Corrupt, last), "harm {number}: {error}");
        }
    }
    assert_eq!(found(disk, &name, Recovery::Seal), (vec![1], 2));
}

/// A log without a frame seems never to have begun when its header is damaged, or its file is cut off: the reader says what
/// is wrong with the file. Without a file, it says nothing.
#[test]
fn the_first_segment_is_named_when_a_log_seems_never_to_have_begun() {
    type Harm<'h> = &'h dyn Fn(&SimDisk);
    let (disk, name, _log) = short_segments();
    let (objects, first): (Arc<dyn ObjectStorage>, _) =
        (Arc::new(MemoryObjects::new()), "log/00000000000000000001.log");
    let bad_begin = |disk: &SimDisk, recovery| {
        let disk: Arc<dyn Disk> = Arc::new(disk.duplicate());
        let reader = open_log(&objects, Some(&disk), &name, recovery).unwrap();
        assert_eq!((reader.segments(), reader.begin(), reader.end()), (0, 0, 0));
        reader.bad_begin().cloned()
    };
    let cut = |disk: &SimDisk, length: usize| disk.open(first, true).unwrap().truncate(length as u64).unwrap();
    let harms: [(Harm<'_>, &str); 4] = [
        (&|disk| disk.flip(first, 1, 1).unwrap(), "magic of a segment of a log"),
        (&|disk| disk.flip(first, 20, 4).unwrap(), "a segment's header: the checksum"),
        (&|disk| cut(disk, SEGMENT_HEADER_BYTES), "it ends after its header"),
        (&|disk| cut(disk, 0), ""),
    ];
    for recovery in [Recovery::Look, Recovery::Seal] {
        for (harm, cause) in harms {
            let damaged = disk.duplicate();
            harm(&damaged);
            let error = bad_begin(&damaged, recovery).unwrap();
            assert_eq!((error.kind(), error.object()), (ErrorKind::Corrupt, first), "{error}");
            assert!(error.to_string().contains(cause), "{error}");
        }
        let removed = disk.duplicate();
        removed.remove(first).unwrap();
        for without_file in [removed, SimDisk::new()] {
            assert!(bad_begin(&without_file, recovery).is_none());
        }
    }
    assert_eq!(found(disk, &name, Recovery::Seal), (vec![], 1));
}

/// A log is deleted, by its writer or after a recovery, and the power fails. The files that come back are no log, or
/// can be read.
#[test]
fn what_comes_back_of_a_deleted_log_is_no_damage() {
    let name = ObjectName::new("log").unwrap();
    let objects: Arc<dyn ObjectStorage> = Arc::new(MemoryObjects::new());
    let mut came_back = 0;
    for (is_recovered, seed) in (0..60).map(|seed| (seed % 2 == 0, seed)) {
        let disk = SimDisk::new();
        log_of_segments(&disk, &name);
        let handle: Arc<dyn Disk> = Arc::new(disk.handle());
        if is_recovered {
            open_log(&objects, Some(&handle), &name, Recovery::Seal).unwrap();
        }
        let ending = disk.handle();
        ending.end_at(1 + seed % 9);
        let ending: Arc<dyn Disk> = Arc::new(ending);
        let _deleted = super::delete_log(&objects, Some(&ending), &name);
        disk.lose_power(&mut forebay_env::Random::seeded(seed));
        let reader = open_log(&objects, Some(&handle), &name, Recovery::Look).unwrap();
        reader.frames().unwrap();
        came_back += reader.segments();
    }
    assert!(came_back > 20, "{came_back}");
}

/// The last frame is damaged, which looks like a torn write. Whoever opens the log may find out that it was durable, so it is
/// not cut, although the writer acknowledges nothing any more. Once it is repaired, it is there.
#[test]
fn a_torn_end_is_left_for_its_reader_to_judge() {
    let (disk, name, log) = short_segments();
    let end = log.append(0, 1, &[1; 100]).unwrap();
    log.sync(end).unwrap();
    log.append(0, 2, &[2; 100]).unwrap();
    let damaged = SEGMENT_HEADER_BYTES as u64 + 160 + 60;
    let flip = || disk.flip("log/00000000000000000001.log", damaged, 1).unwrap();
    flip();
    assert_eq!(found(Arc::clone(&disk), &name, Recovery::SealUnlessTorn), (vec![1], 1));
    assert!(!disk.exists("log/end").unwrap());
    assert_eq!(log.sync(log.end()).unwrap_err().kind(), ErrorKind::Fenced);
    flip();
    assert_eq!(found(Arc::clone(&disk), &name, Recovery::SealUnlessTorn), (vec![1, 2], 1));
    assert!(disk.exists("log/end").unwrap());
}

/// Recovery takes room only for frames that were not known to be durable. A second recovery finds the same.
#[test]
fn what_was_durable_is_not_copied_by_recovery() {
    let name = ObjectName::new("log").unwrap();
    let objects: Arc<dyn ObjectStorage> = Arc::new(MemoryObjects::new());
    for unsynced in 0..3 {
        let disk = SimDisk::new();
        let log = FileLog::create(Arc::new(disk.handle()), &name, 7, FileLogOptions::default()).unwrap();
        for mark in 0..40 {
            let end = log.append(0, mark, &[1; 1000]).unwrap();
            log.sync(end).unwrap();
        }
        for mark in 40..40 + unsynced {
            log.append(0, mark, &[1; 1000]).unwrap();
        }
        let marks = |disk: &SimDisk, recovery| {
            let disk: Arc<dyn Disk> = Arc::new(disk.handle());
            let frames = open_log(&objects, Some(&disk), &name, recovery).and_then(|reader| reader.frames());
            frames.unwrap().iter().map(|frame| frame.mark).collect::<Vec<_>>()
        };
        let all: Vec<_> = (0..40 + unsynced).collect();
        assert_eq!(marks(&disk, Recovery::Look), all);
        assert_eq!(marks(&disk, Recovery::Seal), all);
        // A writer that slept continues in its file.
        log.append(0, 99, &[9; 1000]).unwrap();
        assert_eq!(log.sync(log.end()).unwrap_err().kind(), ErrorKind::Fenced);
        // The last frame that was synced says how far the log was durable before.
        let kept = disk.open("log/end", false).unwrap().length().unwrap();
        assert!((1..=2 + unsynced).contains(&(kept / 1056)), "{kept} bytes for {unsynced} frames");
        for lost in [false, true] {
            if lost {
                disk.lose_power(&mut forebay_env::Random::seeded(unsynced));
            }
            for recovery in [Recovery::Look, Recovery::Seal] {
                assert_eq!(marks(&disk, recovery), all, "{unsynced}, power lost {lost}");
            }
            let handle: Arc<dyn Disk> = Arc::new(disk.handle());
            let rescued = rescue_log(&objects, Some(&handle), &name).unwrap();
            assert!(rescued.iter().all(|part| part.damage.is_none() && !part.ends_torn), "{rescued:?}");
            let saved: Vec<_> = rescued.iter().flat_map(|part| &part.frames).map(|frame| frame.mark).collect();
            assert_eq!(saved, all);
        }
    }
}

/// Recoveries that end at any step leave at most one file. The file that is left at last is another name of the end of
/// the log.
#[test]
fn what_interrupted_recoveries_leave_does_not_pile_up() {
    let disk = SimDisk::new();
    let name = ObjectName::new("log").unwrap();
    log_of_segments(&disk, &name);
    let objects: Arc<dyn ObjectStorage> = Arc::new(MemoryObjects::new());
    let left = || disk.list("log").unwrap().iter().filter(|entry| entry.name.ends_with(".new")).count();
    let mut most = 0;
    for step in 0..20 {
        let handle = disk.handle();
        handle.end_at(step);
        let ending: Arc<dyn Disk> = Arc::new(handle);
        if open_log(&objects, Some(&ending), &name, Recovery::Seal).is_ok() {
            break;
        }
        most = most.max(left());
        assert!(left() <= 1, "step {step}");
    }
    assert_eq!(most, 1);
}

/// The part of the last segment that recovery kept becomes shorter.
#[test]
fn a_recovered_end_that_is_cut_off_is_noticed() {
    let whole = SimDisk::new();
    let name = ObjectName::new("log").unwrap();
    log_of_segments(&whole, &name);
    let objects: Arc<dyn ObjectStorage> = Arc::new(MemoryObjects::new());
    let read = |disk: &SimDisk, recovery| {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        open_log(&objects, Some(&disk), &name, recovery).and_then(|reader| reader.frames()).map(|frames| frames.len())
    };
    assert_eq!(read(&whole, Recovery::Seal).unwrap(), 70);
    let length = whole.open("log/end", false).unwrap().length().unwrap();
    for length in 0..length {
        let disk = whole.duplicate();
        disk.open("log/end", true).unwrap().truncate(length).unwrap();
        match read(&disk, Recovery::Look) {
            Ok(frames) => assert_eq!(frames, 70, "cut to {length} bytes"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt),
        }
    }
}

/// Returns a log of two frames, each in an object of its own after the first object, and the log's name.
fn two_objects() -> (Arc<dyn ObjectStorage>, ObjectName) {
    let objects: Arc<dyn ObjectStorage> = Arc::new(MemoryObjects::new());
    let name = ObjectName::new("log").unwrap();
    let log = ObjectLog::create(Arc::clone(&objects), &name, 7, ObjectLogOptions::default()).unwrap();
    for mark in 1..3 {
        let end = log.append(0, mark, &[1; 100]).unwrap();
        log.sync(end).unwrap();
    }
    (objects, name)
}

/// Requests take long, so each segment is asked for once. An existing seal is read to be recognised.
#[test]
fn each_segment_is_asked_for_once() {
    let (objects, name) = two_objects();
    for reads in [3, 3 + 1] {
        let storage = Storage::of_objects(Arc::clone(&objects), StorageOptions::default());
        assert_eq!(storage.open_log(&name, Recovery::Seal).unwrap().frames().unwrap().len(), 2);
        let counts = storage.counts();
        assert_eq!((counts.objects_read, counts.objects_written), (reads, u64::from(reads == 3)));
    }
}

/// An object of a sealed log is gone, as the seal's number shows.
#[test]
fn the_last_object_of_a_sealed_log_is_missed() {
    let (objects, name) = two_objects();
    assert_eq!(open_log(&objects, None, &name, Recovery::Seal).unwrap().frames().unwrap().len(), 2);
    objects.delete(&name.numbered(3).unwrap()).unwrap();
    for recovery in [Recovery::Look, Recovery::Seal] {
        assert_eq!(open_log(&objects, None, &name, recovery).map(drop).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

/// A segment was put by two requests, because the first got no reply. The first arrives after the log was
/// trimmed.
#[test]
fn a_trimmed_segment_that_comes_back_is_no_damage() {
    let objects: Arc<dyn ObjectStorage> = Arc::new(MemoryObjects::new());
    let name = ObjectName::new("log").unwrap();
    let log = ObjectLog::create(Arc::clone(&objects), &name, 7, ObjectLogOptions::default()).unwrap();
    let ends = [1, 2, 3, 4].map(|mark| {
        let end = log.append(0, mark, &[1; 100]).unwrap();
        log.sync(end).unwrap();
        end
    });
    let second = name.numbered(2).unwrap();
    let late = objects.get(&second).unwrap();
    log.trim(ends[2]).unwrap();
    assert!(objects.get(&second).is_err());
    objects.put(&second, late, PutMode::IfAbsent).unwrap();
    for recovery in [Recovery::Look, Recovery::Seal, Recovery::Seal, Recovery::Look] {
        let frames = open_log(&objects, None, &name, recovery).unwrap().frames().unwrap();
        assert_eq!(frames.iter().map(|frame| frame.mark).collect::<Vec<_>>(), [4]);
    }
}

/// A copy of a segment under the next number.
#[test]
fn a_segment_that_is_another_one_ends_the_recovery_of_a_log() {
    let (objects, name) = two_objects();
    let last = objects.get(&name.numbered(3).unwrap()).unwrap();
    objects.put(&name.numbered(4).unwrap(), last, PutMode::IfAbsent).unwrap();
    let opened = open_log(&objects, None, &name, Recovery::Seal);
    assert_eq!(opened.map(drop).unwrap_err().kind(), ErrorKind::Corrupt);
}

/// The positions of the other objects follow from the size of the changed one, so they do not fit either.
#[test]
fn damage_in_objects_is_told_of_the_one_that_was_changed() {
    let name = ObjectName::new("log").unwrap();
    let objects = MemoryObjects::new();
    let shared: Arc<dyn ObjectStorage> = Arc::new(objects.clone());
    let log = ObjectLog::create(Arc::clone(&shared), &name, 7, ObjectLogOptions::default()).unwrap();
    for mark in 1..6 {
        let end = log.append(0, mark, &[mark as u8; 100]).unwrap();
        log.sync(end).unwrap();
    }
    // The first object has no frames.
    let whole: Vec<_> = (1..7).map(|number| objects.get(&name.numbered(number).unwrap()).unwrap()).collect();
    let long = [&whole[3][..], &[1; 100]].concat();
    // An object cut within a frame, one cut before any frame, and one that makes the others begin before the log does.
    for (number, bytes) in [(3, whole[2].slice(..80)), (4, whole[3].slice(..SEGMENT_HEADER_BYTES)), (4, long.into())] {
        let changed = name.numbered(number).unwrap();
        shared.put(&changed, bytes, PutMode::Replace).unwrap();
        for recovery in [Recovery::Look, Recovery::Seal] {
            let reader = open_log(&shared, None, &name, recovery);
            let found = reader.as_ref().map(|reader| (0..reader.segments()).map(|index| reader.segment(index)));
            let damage: Vec<_> = match found {
                Ok(segments) => segments.filter_map(Result::err).collect(),
                Err(error) => vec![error.clone()],
            };
            assert!(!damage.is_empty());
            for error in damage {
                assert_eq!((error.kind(), error.object()), (ErrorKind::Corrupt, changed.as_str()), "{error}");
            }
        }
        shared.put(&changed, whole[number as usize - 1].clone(), PutMode::Replace).unwrap();
    }
    assert_eq!(open_log(&shared, None, &name, Recovery::Look).unwrap().frames().unwrap().len(), 5);
}

/// Returns the header with version 2 and the checksum of that.
fn of_version_2(header: &[u8]) -> Vec<u8> {
    let mut newer = header.to_vec();
    newer[4] = 2;
    let right = checksum(&newer[..32]);
    newer[32..36].copy_from_slice(&right.to_le_bytes());
    newer
}

/// This holds also for a log without a frame; with a damaged header, it would count as never begun.
#[test]
fn a_log_of_a_newer_build_is_no_damaged_one() {
    let name = ObjectName::new("log").unwrap();
    for frames in 0..2 {
        let sim = SimDisk::new();
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let (objects, _) = two_objects();
        let log = FileLog::create(Arc::clone(&disk), &name, 7, FileLogOptions::default()).unwrap();
        for mark in 0..frames {
            let end = log.append(0, mark, &[1; 100]).unwrap();
            log.sync(end).unwrap();
        }
        check_log(&objects, Some(&disk), &name).unwrap();
        let file = sim.open("log/00000000000000000001.log", true).unwrap();
        let mut header = [0; SEGMENT_HEADER_BYTES];
        file.read_at(0, &mut header).unwrap();
        file.write_at(0, &of_version_2(&header)).unwrap();
        let kind = |result: Result<()>| result.unwrap_err().kind();
        assert_eq!(kind(check_log(&objects, Some(&disk), &name)), ErrorKind::Unsupported);
        assert_eq!(kind(open_log(&objects, Some(&disk), &name, Recovery::Look).map(drop)), ErrorKind::Unsupported);
        let rescued = rescue_log(&objects, Some(&disk), &name).unwrap();
        assert_eq!(rescued[0].damage.as_ref().unwrap().kind(), ErrorKind::Unsupported);
        assert!(rescued[0].frames.is_empty());
    }
}

#[test]
fn a_log_of_a_newer_build_in_objects_is_no_damaged_one() {
    let (objects, name) = two_objects();
    check_log(&objects, None, &name).unwrap();
    let last = name.numbered(3).unwrap();
    let bytes = objects.get(&last).unwrap();
    let newer = [&of_version_2(&bytes[..SEGMENT_HEADER_BYTES]), &bytes[SEGMENT_HEADER_BYTES..]].concat();
    objects.put(&last, newer.into(), PutMode::Replace).unwrap();
    let kind = |result: Result<()>| result.unwrap_err().kind();
    assert_eq!(kind(check_log(&objects, None, &name)), ErrorKind::Unsupported);
    assert_eq!(kind(open_log(&objects, None, &name, Recovery::Look).map(drop)), ErrorKind::Unsupported);
}

/// The frames of a segment whose header is damaged are not lost, and what follows them is reported.
#[test]
fn a_segment_with_a_damaged_header_is_rescued() {
    let (objects, name) = two_objects();
    let last = name.numbered(3).unwrap();
    let whole = objects.get(&last).unwrap();
    for (bytes, frames, ends_torn) in [(whole.to_vec(), 1, false), ([&whole[..], &[7; 8]].concat(), 1, true)] {
        let mut bytes = bytes;
        bytes[10] ^= 1;
        objects.put(&last, bytes.into(), PutMode::Replace).unwrap();
        let rescued = rescue_log(&objects, None, &name).unwrap().pop().unwrap();
        assert_eq!((rescued.frames.len(), rescued.frames[0].mark, rescued.log), (frames, 2, 7));
        assert_eq!((rescued.ends_torn, rescued.damage.unwrap().kind()), (ends_torn, ErrorKind::Corrupt));
    }
}
