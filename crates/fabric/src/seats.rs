//! A link's endpoints as its node knows them. Each has a seat on the account that the layer above names.
//!
//! A link may have endpoints before the layer above has heard of the link. So an account takes them over when it is
//! named, and the endpoints for which it has no room end.

use crate::transport::Account;
use crate::{EndpointId, Error};
use forebay_env::HashMap;
use std::sync::Arc;

/// The endpoints of a link, and the account that counts them. `T` is what the node keeps of an endpoint.
#[derive(Debug)]
pub(crate) struct Endpoints<T> {
    all: HashMap<EndpointId, (Arc<T>, Seat)>,
    account: Option<Arc<dyn Account>>,
}

impl<T> Default for Endpoints<T> {
    fn default() -> Self {
        Self { all: HashMap::default(), account: None }
    }
}

/// What an endpoint takes up on an account, until it is dropped.
#[derive(Debug)]
struct Seat(Option<Arc<dyn Account>>);

impl Seat {
    fn on(account: Option<&Arc<dyn Account>>) -> Result<Self, Error> {
        account.map_or(Ok(()), |account| account.take())?;
        Ok(Self(account.cloned()))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(account) = self.0.take() {
            account.give_back();
        }
    }
}

impl<T> Endpoints<T> {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn get(&self, endpoint: EndpointId) -> Option<&Arc<T>> {
        self.all.get(&endpoint).map(|(outlet, _)| outlet)
    }

    /// Takes an endpoint in.
    ///
    /// # Errors
    /// Those of [`Account::take`].
    pub(crate) fn insert(&mut self, endpoint: EndpointId, outlet: Arc<T>) -> Result<(), Error> {
        let seat = Seat::on(self.account.as_ref())?;
        self.all.insert(endpoint, (outlet, seat));
        Ok(())
    }

    pub(crate) fn remove(&mut self, endpoint: EndpointId) {
        self.all.remove(&endpoint);
    }

    /// Takes out all of them; they are no longer counted.
    pub(crate) fn take_all(&mut self) -> Vec<Arc<T>> {
        self.all.drain().map(|(_, (outlet, _))| outlet).collect()
    }

    /// Counts the endpoints on this account from now on. Returns those for which it has no room, with the reason; the caller
    /// ends them.
    pub(crate) fn count_on(&mut self, account: Arc<dyn Account>) -> Vec<(Arc<T>, Error)> {
        let mut ended = Vec::new();
        self.all.retain(|_, (outlet, seat)| match Seat::on(Some(&account)) {
            Ok(taken) => {
                *seat = taken;
                true
            }
            Err(cause) => {
                ended.push((Arc::clone(outlet), cause));
                false
            }
        });
        self.account = Some(account);
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_base::ErrorKind;
    use forebay_env::sync::lock;
    use std::sync::Mutex;

    #[derive(Debug)]
    struct Two(Mutex<usize>);

    impl Account for Two {
        fn take(&self) -> Result<(), Error> {
            let mut taken = lock(&self.0);
            if *taken == 2 {
                return Err(Error::Remote { kind: ErrorKind::Busy, message: "two are the most".into() });
            }
            *taken += 1;
            Ok(())
        }

        fn give_back(&self) {
            *lock(&self.0) -= 1;
        }
    }

    #[test]
    fn links_share_an_account() {
        let account = Arc::new(Two(Mutex::new(0)));
        let taken = || *lock(&account.0);
        let [mut one, mut other] = [(); 2].map(|()| Endpoints::<u32>::default());
        one.count_on(Arc::clone(&account) as Arc<dyn Account>);
        other.count_on(Arc::clone(&account) as Arc<dyn Account>);
        one.insert(EndpointId(1), Arc::new(1)).unwrap();
        other.insert(EndpointId(1), Arc::new(2)).unwrap();
        assert!(one.insert(EndpointId(2), Arc::new(3)).is_err());
        assert_eq!((one.len(), taken()), (1, 2), "what is refused is not there");
        other.remove(EndpointId(1));
        one.insert(EndpointId(2), Arc::new(3)).unwrap();
        assert_eq!((one.take_all().len(), taken()), (2, 0));
        drop(other);
        assert_eq!(taken(), 0);
    }

    #[test]
    fn endpoints_that_came_before_their_account_are_counted_or_end() {
        let account = Arc::new(Two(Mutex::new(0)));
        let mut early = Endpoints::<u32>::default();
        (0..5).for_each(|at| early.insert(EndpointId(at), Arc::new(at)).unwrap());
        let ended = early.count_on(Arc::clone(&account) as Arc<dyn Account>);
        assert_eq!((ended.len(), early.len(), *lock(&account.0)), (3, 2, 2));
        assert!(ended.iter().all(|(outlet, _)| early.get(EndpointId(**outlet)).is_none()));
        drop(early);
        assert_eq!(*lock(&account.0), 0);
    }
}
