//! Users, and what they may do. This module knows nothing of connections, or of what commands do.
//!
//! | module | holds |
//! |---|---|
//! | `catalogue` | the names of all commands, with their categories, as sets |
//! | `selector` | which commands, keys and channels a rule set allows |
//! | `user` | a user: passwords, a root selector, and more selectors |
//! | `modifiers` | the words that change a user, and that describe one |
//! | `denials` | what was denied lately, for `ACL LOG` |
//! | `users` | all users, and the file that holds them |

pub mod catalogue;
pub mod denials;
pub mod modifiers;
pub mod selector;
pub mod user;
pub mod users;
