//! Which users' processes may connect to a Unix socket.

/// Users and groups of the machine. A process is admitted if it runs as one of the users or with one of the groups
/// as its own group. A user's further groups do not count, because the system does not report them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Users {
    /// Numbers of users.
    pub uids: Vec<u32>,
    /// Numbers of groups.
    pub gids: Vec<u32>,
}

impl Users {
    /// Whether none is named: then the permissions of the socket's file decide, which admit only its owner.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.uids.is_empty() && self.gids.is_empty()
    }

    /// Whether a process with these numbers is let in.
    #[must_use]
    pub fn admit(&self, uid: u32, gid: u32) -> bool {
        self.is_empty() || self.uids.contains(&uid) || self.gids.contains(&gid)
    }
}

/// Whether processes of the user have full control of this process: they are its own user's, or the system's.
#[must_use]
pub fn is_own_user(uid: u32) -> bool {
    let own = rustix::process::geteuid();
    uid == own.as_raw() || uid == rustix::process::Uid::ROOT.as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_named_is_let_in() {
        let users = Users { uids: vec![5, 6], gids: vec![9] };
        assert!(users.admit(5, 1) && users.admit(6, 9) && users.admit(7, 9));
        assert!(!users.admit(7, 5) && !users.admit(0, 0));
        assert!(Users::default().admit(0, 0));
    }
}
