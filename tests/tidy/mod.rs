//! The house's rules, read off the tree: who may name whom, how long things may be, what may not be written, and that the
//! documents speak of things that exist. Nothing here builds or runs anything.

mod citations;
mod data;
mod documents;
mod edges;
mod effects;
mod lexer;
mod sizes;
mod tree;
mod without;
mod words;
