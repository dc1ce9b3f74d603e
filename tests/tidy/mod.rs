//! The repository's own rules, checked on its files: allowed dependencies, lengths, forbidden words, and documents that
//! mention only things that exist. No test here builds or runs anything.

mod actors;
mod citations;
mod data;
mod decisions;
mod dialect;
mod documents;
mod edges;
mod effects;
mod events;
mod lexer;
mod page;
mod sizes;
mod tree;
mod without;
mod words;
