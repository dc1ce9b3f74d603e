//! A hash map whose order is the same in every run. What leaves it in its own order (replies that are dropped, tasks
//! that are aborted, actors that are stopped) would otherwise make two runs of one seed differ. Its keys are the
//! kernel's own, so nobody can choose them to collide.

use std::{
    collections::{HashMap, hash_map::DefaultHasher},
    hash::BuildHasherDefault,
};

/// A hash map of fixed order.
pub(crate) type FixedMap<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;
