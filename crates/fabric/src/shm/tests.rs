//! A node among hostile clients: whatever arrives at its socket, it serves the others.

use super::channel::{Channel, Door, Received, lock_folder};
use super::events::Events;
use super::frame::{BUFFER_BYTES, Frame, HEADER_BYTES, VERSION};
use super::notice::{Notice, Page};
use super::offered::file_for;
use super::peer::{MAX_CLIENT_GRANTS, MAX_UNSAID_ANSWERS, ShmPeer, WAITING_BYTES};
use super::server::{MAX_CLIENT_BYTES, MAX_CLIENT_GRANT_BYTES};
use super::transport::ShmTransport;
use super::{ShmListener, connect, link, listen, listen_with};
use crate::admission::Users;
use crate::transport::{Account, Event, Listener, Peer, Transport};
use crate::{AccessKey, Backing, EndpointOptions, Error, GrantTable, PeerId, Region, Rights};
use forebay_base::ErrorKind;
use forebay_env::Random;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::mm::MprotectFlags;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(10);

fn socket_path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("forebay-{}-{name}.socket", std::process::id()))
}

/// A node to which nobody has a link, and its socket.
fn listening(name: &str) -> (PathBuf, ShmListener) {
    let path = socket_path(name);
    let listener = listen(&path, 1).unwrap();
    (path, listener)
}

/// The client whose link was opened.
fn joined(listener: &mut ShmListener) -> Arc<dyn Peer> {
    match listener.next(LONG).unwrap() {
        Some(Event::Joined(peer)) => peer,
        other => panic!("no link, but {other:?}"),
    }
}

/// A link made of raw frames: its control socket, number and token.
fn raw_link(path: &Path) -> (Channel, u64, u128) {
    let control = Channel::connect(path, LONG).unwrap();
    control.send(&[&Frame::OpenLink.encode()], None, LONG).unwrap();
    let (answer, file) = control.receive_within(LONG).unwrap();
    let Ok(Frame::LinkOpened { link, token, .. }) = Frame::decode(&answer) else { panic!("no link") };
    assert!(file.is_some());
    (control, link, token)
}

fn raw_endpoint(path: &Path, link: u64, token: u128, endpoint: u32) -> Result<Channel, u8> {
    let channel = Channel::connect(path, LONG).unwrap();
    channel.send(&[&Frame::OpenEndpoint { link, token, endpoint }.encode()], None, LONG).unwrap();
    let (answer, _) = channel.receive_within(LONG).unwrap();
    match Frame::decode(&answer) {
        Ok(Frame::EndpointOpened) => Ok(channel),
        Ok(Frame::Refused { status, .. }) => Err(status),
        other => panic!("answered with {other:?}"),
    }
}

/// Waits until the node has closed the socket.
fn is_closed(channel: &Channel) -> bool {
    let mut buffer = vec![0; BUFFER_BYTES];
    for _ in 0..100 {
        if let Received::Ended(_) = channel.receive(&mut buffer) {
            return true;
        }
        channel.wait(rustix::event::PollFlags::IN, LONG / 100);
    }
    false
}

fn grant_status(control: &Channel, frame: Frame<'_>, file: Option<BorrowedFd<'_>>) -> u8 {
    control.send(&[&frame.encode()], file, LONG).unwrap();
    match Frame::decode(&control.receive_within(LONG).unwrap().0) {
        Ok(Frame::GrantTaken { status, .. }) => status,
        other => panic!("answered with {other:?}"),
    }
}

#[test]
fn random_packets_harm_nobody_else() {
    let (path, mut listener) = listening("random");
    let good = connect(&path).unwrap();
    let peer = joined(&mut listener);
    let region = listener.allocate(4096).unwrap();
    let key = peer.grant(&region, 0, 4096, Rights::ALL).unwrap();
    let mut endpoint = good.endpoint(EndpointOptions::default()).unwrap();
    let seed = 5;
    let mut random = Random::seeded(seed);
    for round in 0..300 {
        let (channel, link, token) = raw_link(&path);
        let channel = match random.below(3) {
            0 => Channel::connect(&path, LONG).unwrap(),
            1 => raw_endpoint(&path, link, token, 1).unwrap(),
            _ => channel,
        };
        for _ in 0..4 {
            let mut packet = vec![0; 1 + random.below(80) as usize];
            random.fill(&mut packet);
            if random.one_in(3, 4) && packet.len() >= 8 {
                let length = (packet.len() as u32).to_le_bytes();
                packet[..4].copy_from_slice(&length);
                packet[4..8].copy_from_slice(&[VERSION, random.below(13) as u8, 0, 0]);
            }
            // The node may have closed the socket already.
            let _ = channel.try_send(&[&packet], Some(region.file().unwrap()));
        }
        endpoint.write(key.at(8), &[round as u8; 8]).unwrap();
        assert!(good.is_alive() && peer.is_alive(), "seed {seed}, round {round}");
        while listener.next(Duration::ZERO).unwrap().is_some() {}
    }
    let id = endpoint.post_message(b"still here").unwrap();
    endpoint.wait_for(id).unwrap();
    let heard = std::iter::from_fn(|| listener.next(LONG).unwrap())
        .any(|event| matches!(event, Event::Message { peer: of, bytes, .. } if of.id() == peer.id() && bytes == b"still here"));
    assert!(heard);
}

#[test]
fn nobody_joins_the_link_of_another() {
    let (path, _listener) = listening("token");
    let (_control, link, token) = raw_link(&path);
    let denied = Some(ErrorKind::AccessDenied.code());
    assert_eq!(raw_endpoint(&path, link, token ^ 1, 1).err(), denied);
    assert_eq!(raw_endpoint(&path, link + 1, token, 1).err(), denied);
    let _first = raw_endpoint(&path, link, token, 1).unwrap();
    assert_eq!(raw_endpoint(&path, link, token, 1).err(), Some(ErrorKind::Invalid.code()));
}

/// Bytes of a node's page: the thread, and how often something was revoked.
fn on_page(page: &Region) -> (u64, u64) {
    (page.load(0).unwrap(), page.load(8).unwrap())
}

#[test]
fn a_node_tells_in_memory_that_it_lives_and_has_taken_something_back() {
    let (path, mut listener) = listening("page");
    let control = Channel::connect(&path, LONG).unwrap();
    control.send(&[&Frame::OpenLink.encode()], None, LONG).unwrap();
    let file = control.receive_within(LONG).unwrap().1.unwrap();
    let peer = joined(&mut listener);
    let page = Region::from_received(file, 0, 4096, false).unwrap();
    let (thread, count) = on_page(&page);
    assert!((1..1 << 30).contains(&thread) && count == 0);

    let granted = listener.allocate(4096).unwrap();
    let key = peer.grant(&granted, 0, 4096, Rights::ALL).unwrap();
    assert_eq!(on_page(&page), (thread, 0));
    let _revocation = peer.revoke(key).unwrap();
    assert_eq!(on_page(&page), (thread, 1));
    // The frames of what is counted are at the socket already.
    let frames = [control.receive_within(LONG).unwrap().0, control.receive_within(LONG).unwrap().0];
    assert_eq!(Frame::decode(&frames[1]), Ok(Frame::Revoke { key }));
    peer.close();
    assert_eq!(on_page(&page), (thread, 2));
    assert!(is_closed(&control));
    drop(listener);
    assert_eq!(on_page(&page), (0, 2));
}

#[test]
fn nobody_but_its_node_writes_a_page() {
    let page = Page::new().unwrap();
    let file = page.file().unwrap();
    let again = |flags| {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::open(path, flags, rustix::fs::Mode::empty()).unwrap()
    };
    for file in [file.try_clone_to_owned().unwrap(), again(OFlags::RDWR)] {
        assert!(rustix::io::pwrite(&file, &[1; 8], 8).is_err());
        assert!(Region::from_received(file.try_clone().unwrap(), 0, 4096, true).is_err());
        let read = Region::from_received(file, 0, 4096, false).unwrap();
        assert!(read.store(8, 1).is_err());
        // SAFETY: the range is the mapping; nothing is written to it, whatever the kernel answers.
        let opened = unsafe { rustix::mm::mprotect(read.as_ptr().as_ptr().cast(), 4096, MprotectFlags::WRITE) };
        assert!(opened.is_err());
    }
    page.taken_back();
    assert_eq!(on_page(&Region::from_received(again(OFlags::RDONLY), 0, 4096, false).unwrap()), (0, 1));
}

/// The kernel marks a node dead whose thread ends without doing so.
#[test]
fn a_thread_that_ends_without_a_word_is_told_to_be_dead() {
    let page = Page::new().unwrap();
    let notice = Notice::of_file(page.file().unwrap().try_clone_to_owned().unwrap(), 0).unwrap();
    assert!(!notice.is_unchanged());
    let end = |keeps: bool| {
        std::thread::scope(|scope| {
            let node = scope.spawn(|| {
                let living = page.live().unwrap();
                let was_unchanged = notice.is_unchanged();
                if keeps {
                    std::mem::forget(living);
                }
                was_unchanged
            });
            assert!(node.join().unwrap() && !notice.is_unchanged());
        });
    };
    end(false);
    end(true);
    end(false);
}

/// Maps what is granted to a raw link.
fn take_grant(control: &Channel) -> (AccessKey, Region) {
    let (frame, file) = control.receive_within(LONG).unwrap();
    let Ok(Frame::Grant { key, offset, length, .. }) = Frame::decode(&frame) else { panic!("no grant") };
    (key, Region::from_received(file.unwrap(), offset, length as usize, true).unwrap())
}

/// More than a socket holds.
const MANY: u32 = 400;

#[test]
fn a_node_that_grants_and_revokes_waits_for_no_client() {
    let (path, mut listener) = listening("slow");
    let (control, ..) = raw_link(&path);
    let peer = joined(&mut listener);
    let granted = listener.allocate(8192).unwrap();
    // The client takes in none of them meanwhile.
    let rights = |n: u32| if n.is_multiple_of(2) { Rights::ALL } else { Rights::READ };
    let keys: Vec<_> = (0..MANY).map(|n| peer.grant(&granted, 4096, 4096, rights(n)).unwrap()).collect();
    let revocations: Vec<_> = keys.iter().map(|key| peer.revoke(*key).unwrap()).collect();
    for (key, n) in keys.iter().zip(0..) {
        let (frame, file) = control.receive_within(LONG).unwrap();
        let expected = Frame::Grant { key: *key, rights: rights(n), offset: 4096, length: 4096 };
        assert_eq!(Frame::decode(&frame), Ok(expected));
        let status = rustix::fs::fcntl_getfl(file.unwrap()).unwrap();
        assert_eq!(status.contains(OFlags::RDWR), rights(n) == Rights::ALL);
    }
    for key in &keys {
        assert_eq!(Frame::decode(&control.receive_within(LONG).unwrap().0), Ok(Frame::Revoke { key: *key }));
        control.send(&[&Frame::Released { key: *key }.encode()], None, LONG).unwrap();
    }
    while !revocations.iter().all(crate::Revocation::is_complete) {
        assert!(peer.is_alive());
        std::thread::yield_now();
    }
}

#[test]
fn a_node_that_sends_waits_for_no_client() {
    let (path, mut listener) = listening("unsent");
    let (_control, link, token) = raw_link(&path);
    let peer = joined(&mut listener);
    let (id, endpoint) = (crate::EndpointId(3), raw_endpoint(&path, link, token, 3).unwrap());
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    // At first, the node no longer reads what the client sends.
    for n in 0..MANY {
        let frame = Frame::Message(&n.to_le_bytes()).encode();
        if !endpoint.try_send(&[&frame], None).unwrap() {
            break;
        }
    }
    (0..MANY).for_each(|n| peer.send(id, &n.to_le_bytes()).unwrap());
    let unsent = peer.unsent(id);
    assert!(unsent > 0 && peer.is_alive());
    // What waits counts as what it takes up, which is far more than a few bytes.
    peer.send(id, &MANY.to_le_bytes()).unwrap();
    assert_eq!(peer.unsent(id) - unsent, WAITING_BYTES + HEADER_BYTES + 4);
    for n in 0..=MANY {
        let (frame, _) = endpoint.receive_within(LONG).unwrap();
        let Ok(Frame::Message(bytes)) = Frame::decode(&frame) else { panic!("no message") };
        assert_eq!(number(bytes), n);
    }
    assert_eq!(peer.unsent(id), 0);
    for n in 0..256 {
        let Some(Event::Message { bytes, .. }) = listener.next(LONG).unwrap() else { panic!("no message") };
        assert_eq!(number(&bytes), n);
    }
}

/// A node without a thread, and a client without one.
fn by_hand(path: &Path) -> (Door, ShmPeer, Arc<link::Shared>) {
    let door = Door::open(path, false).unwrap();
    let (peer, link) = std::thread::scope(|scope| {
        let client = scope.spawn(|| link::introduced(path).unwrap());
        let control = std::iter::from_fn(|| Some(door.accept().unwrap())).flatten().next().unwrap();
        control.receive_within(LONG).unwrap();
        let (page, events) = (Page::new().unwrap(), Arc::new(Events::new().unwrap()));
        let line = page.line().unwrap();
        let opened = Frame::LinkOpened { node: 1, incarnation: 2, link: 3, token: 4, line: line.number };
        control.send(&[&opened.encode()], Some(page.file().unwrap()), LONG).unwrap();
        let origin = control.origin().unwrap();
        let peer = ShmPeer::new((PeerId(3), 4), origin, Arc::new(control), (page, line), events);
        (peer, client.join().unwrap())
    });
    (door, peer, link)
}

/// A client looks for what the node has told by other ways until it arrives, although the socket is empty in
/// between.
#[test]
fn a_client_waits_for_frames_that_had_no_room() {
    let path = socket_path("no-room");
    let (_door, peer, link) = by_hand(&path);
    let granted = Region::allocate(4096, Backing::Shareable).unwrap();
    let key = peer.grant(&granted, 0, 4096, Rights::ALL).unwrap();
    let attached = link::Attached { channel: Channel::connect(&path, LONG).unwrap(), known: GrantTable::new() };
    assert_eq!(link.confirm(&key, &attached), Ok(()));
    while !peer.control.has_unsaid() {
        peer.grant(&granted, 0, 4096, Rights::ALL).unwrap();
    }
    let _revocation = peer.revoke(key).unwrap();
    std::thread::scope(|scope| {
        let confirming = scope.spawn(|| link.confirm(&key, &attached));
        // Few rounds: on a busy machine each takes milliseconds, and a client waits for a few seconds only.
        for _ in 0..100 {
            std::thread::yield_now();
            assert!(!confirming.is_finished());
        }
        while peer.control.has_unsaid() {
            peer.control.say_on().unwrap();
            std::thread::yield_now();
        }
        assert_eq!(confirming.join().unwrap(), Err(Error::AccessDenied));
    });
}

#[test]
fn a_client_that_is_slow_finds_all_of_its_grants() {
    let (path, mut listener) = listening("announced");
    let link = link::introduced(&path).unwrap();
    let attached = link.attach().unwrap();
    let peer = joined(&mut listener);
    let granted = listener.allocate(4096).unwrap();
    let grant = || peer.grant(&granted, 0, 4096, Rights::ALL).unwrap();
    let first = grant();
    link.learn(first, &attached);
    assert_eq!(link.confirm(&first, &attached), Ok(()));
    for _ in 0..MANY {
        let _key = grant();
    }
    let last = grant();
    let _revocation = peer.revoke(first).unwrap();
    assert_eq!(link.confirm(&first, &attached), Err(Error::AccessDenied));
    link.learn(last, &attached);
    assert_eq!(link.confirm(&last, &attached), Ok(()));
    assert!(link.notice.is_unchanged());
    let frames = [grant(), grant()];
    for _ in 0..MANY {
        let _key = grant();
    }
    let last = grant();
    link.learn(last, &attached);
    assert!(frames.iter().chain([&last]).all(|key| link.confirm(key, &attached) == Ok(())));
}

#[test]
fn a_client_that_asks_and_takes_no_answers_loses_its_link() {
    let (path, mut listener) = listening("asks");
    let (control, ..) = raw_link(&path);
    let peer = joined(&mut listener);
    let question = Frame::Revoke { key: AccessKey::new(0, 7) }.encode();
    for _ in 0..MAX_UNSAID_ANSWERS {
        control.send(&[&question], None, LONG).unwrap();
    }
    assert!(peer.is_alive());
    while peer.is_alive() {
        control.send(&[&question], None, LONG).unwrap();
    }
    // Frames that had room come before the end.
    let mut buffer = vec![0; BUFFER_BYTES];
    assert!(matches!(control.receive(&mut buffer), Received::Packet(..)));
    let answers = std::iter::from_fn(|| match control.receive(&mut buffer) {
        Received::Packet(..) => Some(()),
        other => {
            assert!(matches!(other, Received::Ended(_)), "{other:?}");
            None
        }
    });
    assert!(answers.count() < MAX_UNSAID_ANSWERS);
}

/// However the node ends a link, a client that has not closed it may still be writing.
#[test]
fn memory_is_the_clients_until_it_closes_the_link() {
    let (path, mut listener) = listening("kept");
    let granted = listener.allocate(8192).unwrap();
    let closing = |peer: &dyn Peer, _: &Channel| peer.close();
    let breaking = |_: &dyn Peer, control: &Channel| control.send(&[b"no frame"], None, LONG).unwrap();
    for end in [&closing as &dyn Fn(&dyn Peer, &Channel), &breaking] {
        let (control, ..) = raw_link(&path);
        let peer = joined(&mut listener);
        let grants = [0, 4096].map(|offset| peer.grant(&granted, offset, 4096, Rights::ALL).unwrap());
        let mapped = [(); 2].map(|()| take_grant(&control).1);
        let asked = peer.revoke(grants[0]).unwrap();
        end(&*peer, &control);
        assert!(is_closed(&control));
        // The node's thread closes the socket first.
        while peer.is_alive() {
            std::thread::yield_now();
        }
        let not_asked = peer.revoke(grants[1]).unwrap();
        assert!(peer.grant(&granted, 0, 4096, Rights::ALL).is_err());
        // The node serves others meanwhile, and still counts this link.
        let (other, ..) = raw_link(&path);
        assert!(matches!(listener.next(LONG).unwrap(), Some(Event::Joined(_))));
        drop(other);
        assert!(matches!(listener.next(LONG).unwrap(), Some(Event::Left { peer: left, .. }) if left != peer.id()));
        assert!(!asked.is_complete() && !not_asked.is_complete());
        // A client that releases a part is believed.
        control.send(&[&Frame::Released { key: grants[0] }.encode()], None, LONG).unwrap();
        while !asked.is_complete() {
            std::thread::yield_now();
        }
        assert!(!not_asked.is_complete());
        drop((mapped, control));
        assert!(matches!(listener.next(LONG).unwrap(), Some(Event::Left { peer: left, .. }) if left == peer.id()));
        assert!(not_asked.is_complete());
        assert!(peer.revoke(grants[1]).is_err());
    }
}

/// A link that the node has ended keeps its place until the client closes it, however long that takes. The place is charged
/// to the client's user, who may have only a part of all.
#[test]
fn links_that_are_never_closed_take_the_places_of_their_user() {
    let path = socket_path("unclosed");
    let mut listener = listen_with(&path, 1, Users::default(), 3).unwrap();
    let ended = [(); 3].map(|()| {
        let (control, ..) = raw_link(&path);
        joined(&mut listener).close();
        assert!(is_closed(&control));
        control
    });
    let another = Channel::connect(&path, LONG).unwrap();
    let (answer, _) = another.receive_within(LONG).unwrap();
    let Ok(Frame::Refused { status, text }) = Frame::decode(&answer) else { panic!("let in") };
    assert_eq!(status, ErrorKind::Busy.code());
    assert!(text.ends_with("has its most connections to the node: 3"), "{text}");
    assert_eq!(listener.admission_counts().crowded, 1);
    drop(ended);
    for _ in 0..3 {
        assert!(matches!(listener.next(LONG).unwrap(), Some(Event::Left { .. })));
    }
    raw_link(&path);
}

/// A process that may read a folder may lock it.
#[test]
fn a_node_does_not_wait_for_good_for_a_folder_that_somebody_keeps_locked() {
    let folder = std::env::temp_dir().join(format!("forebay-{}-locked", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("node");
    let kept = lock_folder(&path, LONG).unwrap();
    let refused = lock_folder(&path, Duration::ZERO).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.to_string().contains("keeps the folder"), "{refused}");
    drop(kept);
    // A process that was just started from this one may have the lock until it runs its own program.
    lock_folder(&path, LONG).unwrap();
    std::fs::remove_dir(&folder).unwrap();
}

#[test]
fn a_node_that_stops_waits_for_no_client() {
    let (path, mut listener) = listening("stops");
    let links = [raw_link(&path), raw_link(&path)];
    let peers = [(); 2].map(|()| joined(&mut listener));
    let granted = listener.allocate(4096).unwrap();
    let revocations = peers.each_ref().map(|peer| {
        let key = peer.grant(&granted, 0, 4096, Rights::ALL).unwrap();
        peer.revoke(key).unwrap()
    });
    peers[0].close();
    drop(listener);
    assert!(revocations.iter().all(crate::Revocation::is_complete));
    assert!(links.iter().all(|(control, ..)| is_closed(control)));
}

/// A process that ends its link tells the node only when none of its threads uses the node's memory any more.
#[test]
fn a_client_leaves_when_its_threads_have_stopped_copying() {
    let (path, mut listener) = listening("copies");
    let link = link::introduced(&path).unwrap();
    let attached = link.attach().unwrap();
    let peer = joined(&mut listener);
    let granted = listener.allocate(4096).unwrap();
    let key = peer.grant(&granted, 0, 4096, Rights::ALL).unwrap();
    link.learn(key, &attached);
    std::thread::scope(|scope| {
        // As a thread that copies does.
        let copying = attached.known.hold();
        assert!(copying.knows(&key));
        let revocation = peer.revoke(key).unwrap();
        scope.spawn(|| link.end("the test ends it"));
        assert!(listener.next(LONG / 100).unwrap().is_none() && !revocation.is_complete());
        drop(copying);
        assert!(matches!(listener.next(LONG).unwrap(), Some(Event::Left { .. })));
        assert!(revocation.is_complete());
    });
    // Frames after the end are not handled.
    link.learn(key, &attached);
    assert!(!attached.known.hold().knows(&key));
}

/// A thread that ends a link finds it ended, also when another thread has begun to end it.
#[test]
fn the_second_to_end_a_link_waits_for_the_first() {
    let (path, mut listener) = listening("ends");
    let _link = raw_link(&path);
    let peer = joined(&mut listener);
    let events = Arc::new(Events::new().unwrap());
    let page = Page::new().unwrap();
    let control = Arc::new(Channel::connect(&path, LONG).unwrap());
    let ending = ShmPeer::new((peer.id(), 1), peer.origin(), control, (page.clone(), page.line().unwrap()), events);
    let ended = || Error::lost("the test", "it ends");
    std::thread::scope(|scope| {
        // The thread that ends the link stops here.
        let held = ending.hold_endpoints();
        let threads = [(); 2].map(|()| scope.spawn(|| ending.end(ended())));
        for _ in 0..1000 {
            std::thread::yield_now();
            assert!(threads.iter().all(|thread| !thread.is_finished()) && ending.is_alive());
        }
        drop(held);
        for thread in threads {
            thread.join().unwrap();
            assert!(!ending.is_alive());
            let page =
                Region::from_received(page.file().unwrap().try_clone_to_owned().unwrap(), 0, 4096, false).unwrap();
            assert_eq!(on_page(&page).1, 1);
        }
    });
}

mod process {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    const PATH: &str = "FOREBAY_TEST_SHM_PAGE";

    /// Not a test: the node that the test below runs in a process of its own. It grants memory to every client, tells the
    /// key, and serves until it is killed.
    #[test]
    fn node() {
        let Some(path) = std::env::var_os(PATH) else { return };
        let mut listener = listen(Path::new(&path), 1).unwrap();
        let region = listener.allocate(4096).unwrap();
        println!("\nready");
        loop {
            if let Some(Event::Joined(peer)) = listener.next(LONG).unwrap() {
                let key = peer.grant(&region, 0, 4096, Rights::ALL).unwrap();
                println!("{} {}", key.index, key.secret());
            }
        }
    }

    /// After a node was killed and is gone, no write to its memory is confirmed, although nobody here has seen the end of
    /// its sockets yet: the link has no thread that would.
    #[test]
    fn nothing_is_confirmed_at_a_node_that_is_dead() {
        kill_a_node("dead", |link, key, attached| link.confirm(&key, attached));
    }

    #[test]
    fn nothing_is_written_at_once_at_a_node_that_is_dead() {
        let region = Region::allocate(4096, Backing::Private).unwrap();
        kill_a_node("dead-at-once", |link, key, attached| {
            let mut transport = ShmTransport::new(Arc::clone(link), Arc::clone(attached));
            transport.write_at_once(key.at(8), &region, 16, 424, None).unwrap()
        });
    }

    /// Asks a link while its node lives and after it was killed.
    fn kill_a_node(name: &str, ask: impl Fn(&Arc<link::Shared>, AccessKey, &Arc<link::Attached>) -> Result<(), Error>) {
        let path = socket_path(name);
        let mut node = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "shm::tests::process::node", "--nocapture"])
            .env(PATH, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(node.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line == "ready"));
        let link = link::introduced(&path).unwrap();
        let key = lines.next().unwrap();
        let (index, secret) = key.split_once(' ').unwrap();
        let key = AccessKey::new(index.parse().unwrap(), secret.parse().unwrap());
        let attached = link.attach().unwrap();
        link.learn(key, &attached);
        assert_eq!(ask(&link, key, &attached), Ok(()));
        assert!(link.notice.is_unchanged(), "the page is enough");
        node.kill().unwrap();
        node.wait().unwrap();
        assert!(link.is_alive(), "the link does not know yet");
        assert!(matches!(ask(&link, key, &attached), Err(Error::PeerLost { .. })));
        assert!(!link.is_alive());
        let _ = std::fs::remove_file(&path);
    }
}

#[test]
fn only_safe_memory_files_are_mapped() {
    let (path, _listener) = listening("files");
    let (control, ..) = raw_link(&path);
    let region = Region::allocate(8192, Backing::Shareable).unwrap();
    let grant =
        |index, offset, length| Frame::Grant { key: AccessKey::new(index, 7), rights: Rights::ALL, offset, length };
    let unavailable = ErrorKind::Unavailable.code();
    let file = region.file();
    assert_eq!(grant_status(&control, grant(0, 0, 8192), None), unavailable);
    assert_eq!(grant_status(&control, grant(0, 0, 12288), file), unavailable);
    assert_eq!(grant_status(&control, grant(0, u64::MAX - 4095, 8192), file), unavailable);
    assert_ne!(grant_status(&control, grant(0, 1, 4096), file), 0);
    assert_eq!(grant_status(&control, grant(5000, 0, 4096), file), ErrorKind::Full.code());
    let cuttable = rustix::fs::memfd_create("cuttable", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&cuttable, 8192).unwrap();
    assert_eq!(grant_status(&control, grant(0, 0, 8192), Some(cuttable.as_fd())), unavailable);
    // Some systems have none of these.
    if let Ok(huge) = rustix::fs::memfd_create("huge", MemfdFlags::HUGETLB | MemfdFlags::ALLOW_SEALING) {
        rustix::fs::ftruncate(&huge, 2 << 20).unwrap();
        rustix::fs::fcntl_add_seals(&huge, SealFlags::SHRINK).unwrap();
        assert_eq!(grant_status(&control, grant(0, 0, 8192), Some(huge.as_fd())), unavailable);
    }
    let plain = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    assert_ne!(grant_status(&control, grant(0, 0, 4096), Some(plain.as_fd())), 0);
    assert_eq!(grant_status(&control, grant(0, 4096, 4096), file), 0);
    assert_ne!(grant_status(&control, grant(0, 0, 4096), file), 0);
    control.send(&[&Frame::Released { key: AccessKey::new(0, 7) }.encode()], None, LONG).unwrap();
    assert!(is_closed(&control));
}

#[test]
fn what_a_client_grants_is_bounded_and_committed_by_nobody() {
    let (path, _listener) = listening("sparse");
    let (control, ..) = raw_link(&path);
    let sparse = rustix::fs::memfd_create("sparse", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&sparse, 64 << 30).unwrap();
    rustix::fs::fcntl_add_seals(&sparse, SealFlags::SHRINK).unwrap();
    let grant = |index, length| {
        let frame = Frame::Grant { key: AccessKey::new(index, 7), rights: Rights::ALL, offset: 0, length };
        grant_status(&control, frame, Some(sparse.as_fd()))
    };
    assert_eq!(grant(0, MAX_CLIENT_GRANT_BYTES + 4096), ErrorKind::Invalid.code());
    let most = (MAX_CLIENT_BYTES / MAX_CLIENT_GRANT_BYTES) as u32;
    assert!((0..most).all(|index| grant(index, MAX_CLIENT_GRANT_BYTES) == 0));
    assert_eq!(rustix::fs::fstat(&sparse).unwrap().st_blocks, 0);
    assert_eq!(grant(most, 4096), ErrorKind::Full.code());
    // A revocation makes room.
    control.send(&[&Frame::Revoke { key: AccessKey::new(0, 7) }.encode()], None, LONG).unwrap();
    let (released, _) = control.receive_within(LONG).unwrap();
    assert_eq!(Frame::decode(&released), Ok(Frame::Released { key: AccessKey::new(0, 7) }));
    assert_eq!(grant(0, 4096), 0);
    assert_eq!(grant(MAX_CLIENT_GRANTS, 4096), ErrorKind::Full.code());
}

#[test]
fn a_file_for_reading_opens_for_nobody_else_to_write() {
    let region = Region::allocate(8192, Backing::Shareable).unwrap();
    let file = file_for(&region, 0, 8192, Rights::READ).unwrap();
    let status = rustix::fs::fstat(&file).unwrap();
    assert_eq!(Mode::from_raw_mode(status.st_mode), Mode::RUSR | Mode::WUSR);
    let other = match rustix::process::geteuid() {
        me if me.is_root() => 65534,
        // Only root can be somebody else.
        _ => return,
    };
    let opens = |how: &str| {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", how]).stdin(file.try_clone().unwrap()).stderr(std::process::Stdio::null());
        shell.uid(other).gid(other).status().unwrap().success()
    };
    assert!(opens("test -f /proc/self/fd/0"));
    assert!(!opens("exec 3<> /proc/self/fd/0"));
}

#[test]
fn nobody_adds_seals_to_a_file() {
    let region = Region::allocate(8192, Backing::Shareable).unwrap();
    let file = file_for(&region, 0, 8192, Rights::ALL).unwrap();
    assert!(rustix::fs::fcntl_add_seals(&file, SealFlags::FUTURE_WRITE).is_err());
}

#[test]
fn a_client_that_takes_nothing_in_loses_its_link_and_only_that() {
    let (path, mut listener) = listening("deaf");
    let (_control, link, token) = raw_link(&path);
    let deaf = joined(&mut listener);
    let _endpoint = raw_endpoint(&path, link, token, 3).unwrap();
    let sent = (0..10_000).position(|_| deaf.send(crate::EndpointId(3), &[0; 60_000]).is_err());
    assert!(sent.is_some_and(|sent| sent < 100), "{sent:?}");
    assert!(!deaf.is_alive());
    assert!(connect(&path).unwrap().endpoint(EndpointOptions::default()).is_ok());
}

/// An account that has room for no endpoint.
#[derive(Debug)]
struct Nobody;

impl Account for Nobody {
    fn take(&self) -> Result<(), Error> {
        Err(Error::Remote { kind: ErrorKind::Busy, message: "none is the most".into() })
    }

    fn give_back(&self) {}
}

#[test]
fn endpoints_are_counted_by_who_is_told_of_the_link() {
    let (path, mut listener) = listening("counted");
    let link = connect(&path).unwrap();
    let mut early = link.endpoint(EndpointOptions::default()).unwrap();
    let peer = joined(&mut listener);
    peer.count_endpoints(Arc::new(Nobody));
    let refused = link.endpoint(EndpointOptions::default()).unwrap_err();
    assert_eq!(refused, Error::Remote { kind: ErrorKind::Busy, message: "none is the most".into() });
    let late = early.post_message(b"late").and_then(|id| early.wait_for(id));
    assert!(late.is_err(), "it came before the account, which has no room for it");
    assert!(peer.is_alive() && link.is_alive());
}
