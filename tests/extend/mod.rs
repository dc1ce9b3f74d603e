//! Extensions that stand outside the kernel's packages, each in one file and through public traits only. They prove that the
//! seams are seams; `docs/how-to-add.md` names them.

mod channel;
mod chore;
mod context;
mod documents;
mod hook;
mod skills;
mod subscriber;
