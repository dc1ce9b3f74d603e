//! Tests of the front ends over a real socket: a kernel with an in-memory store and scripted models, HTTP by reqwest, gRPC by
//! tonic.

mod approvals;
mod chat;
mod conversations;
mod dead_letters;
mod faults;
mod grpc;
mod jobs;
mod lists;
mod notifications;
mod openai;
mod openai_repeats;
mod openai_tools;
mod operate;
mod operations;
mod options;
mod reminders;
mod responses;
mod routes;
mod schedules;
mod security;
mod stream;
mod world;
