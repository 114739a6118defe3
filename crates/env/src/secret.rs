//! Secrets: from the operating system, or, in a simulation, from a seed.

use crate::Random;

impl Random {
    /// 128 bits from the operating system that nobody can guess.
    ///
    /// # Errors
    /// When the operating system has none to give.
    pub fn secret() -> std::io::Result<u128> {
        #[cfg(feature = "seeded-secrets")]
        if let Some(secret) = seeded::next() {
            return Ok(secret);
        }
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        Ok(u128::from_le_bytes(bytes))
    }
}

#[cfg(feature = "seeded-secrets")]
mod seeded {
    use crate::Random;
    use std::cell::RefCell;
    use std::marker::PhantomData;

    thread_local! {
        static SOURCE: RefCell<Option<Random>> = const { RefCell::new(None) };
    }

    /// While this lives, the secrets of its thread come from a seed, so that a simulated run repeats: whether a message
    /// that carries a secret looks whole or torn depends on the secret's bytes. No product is built with this type.
    #[derive(Debug)]
    pub struct SeededSecrets(PhantomData<*const ()>);

    impl SeededSecrets {
        /// Begins to take this thread's secrets from `seed`.
        #[must_use]
        pub fn begin(seed: u64) -> Self {
            SOURCE.with(|source| *source.borrow_mut() = Some(Random::seeded(seed)));
            Self(PhantomData)
        }
    }

    impl Drop for SeededSecrets {
        fn drop(&mut self) {
            SOURCE.with(|source| *source.borrow_mut() = None);
        }
    }

    /// The next secret, while there is a seed for this thread.
    pub(super) fn next() -> Option<u128> {
        let draw = |random: &mut Random| u128::from(random.word()) << 64 | u128::from(random.word());
        SOURCE.with(|source| source.borrow_mut().as_mut().map(draw))
    }
}

#[cfg(feature = "seeded-secrets")]
pub use seeded::SeededSecrets;
