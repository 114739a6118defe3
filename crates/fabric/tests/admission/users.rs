//! Unix sockets: the system says who connects.

use super::SOON;
use forebay_base::ErrorKind;
use forebay_fabric::admission::{Identity, Source, Users};
use forebay_fabric::{EndpointOptions, Event, Listener, shm};
use std::os::unix::fs::PermissionsExt;

fn own() -> (u32, u32) {
    (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
}

#[test]
fn who_connects_is_known() {
    let folder = super::Folder::new();
    let path = folder.path("node");
    let mut node = shm::listen(&path, 1).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let link = shm::connect(&path).unwrap();
    let Some(Event::Joined(peer)) = node.next(SOON).unwrap() else { panic!("no link") };
    let (uid, gid) = own();
    assert_eq!(peer.origin().identity, Identity::User { uid, gid });
    assert_eq!(peer.origin().source, Source::Process(std::process::id() as i32));
    link.endpoint(EndpointOptions::default()).unwrap();
    assert_eq!(node.admission_counts().admitted, 2);
}

#[test]
fn who_is_not_named_is_turned_away() {
    let folder = super::Folder::new();
    let (uid, gid) = own();
    for (users, is_let_in) in [
        (Users { uids: vec![uid], gids: vec![] }, true),
        (Users { uids: vec![], gids: vec![gid, gid + 1] }, true),
        (Users { uids: vec![uid + 1], gids: vec![gid + 1] }, false),
    ] {
        let path = folder.path("node");
        let node = shm::listen_for(&path, 1, users).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
        if is_let_in {
            shm::connect(&path).unwrap();
            continue;
        }
        for turned_away in 1..=3 {
            let error = shm::connect(&path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AccessDenied, "{error}");
            assert!(error.to_string().contains(&format!("user {uid}")), "{error}");
            assert_eq!(node.admission_counts().refused, turned_away);
        }
    }
}
