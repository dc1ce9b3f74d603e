//! A hash map whose order is the same in every run. Replies that are dropped, tasks that are aborted and actors that are
//! stopped leave it in its own order, and a random order would make two runs of one seed differ. Its keys are the kernel's
//! own, so no client can choose them to collide.

use std::{
    collections::{HashMap, hash_map::DefaultHasher},
    hash::BuildHasherDefault,
};

/// A hash map of fixed order.
pub(crate) type FixedMap<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;
