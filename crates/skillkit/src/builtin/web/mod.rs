//! Skills that read web pages. They exist only if the operator has enabled requests to other machines.

pub(crate) mod fetch;
mod html;
