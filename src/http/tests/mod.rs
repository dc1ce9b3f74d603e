//! The doors over a real socket: a kernel on a store in memory with scripted models, HTTP by reqwest, gRPC by tonic.

mod chat;
mod faults;
mod grpc;
mod jobs;
mod letters;
mod lists;
mod notifications;
mod openai;
mod openai_repeats;
mod openai_tools;
mod operate;
mod operations;
mod responses;
mod routes;
mod security;
mod stream;
mod wishes;
mod world;
