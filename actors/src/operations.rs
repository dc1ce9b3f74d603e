//! Long-running operations [S3 6.5]: a skill may answer that its result comes later. The result is delivered with a key that
//! is valid for that one operation, and becomes a message of the operation's conversation, even days later.

use std::fmt;

use annie_core::{
    ids::{IntentId, OperationId},
    ports::OperationGrant,
};
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// The name of the secret in the store from which the keys are derived.
pub(crate) const SECRET: &str = "operations";

/// Makes and checks the operations' keys. A key is the HMAC-SHA256 of the operation's id under a secret of the installation,
/// so no key has to be stored, and keys survive a restart.
#[derive(Clone)]
pub(crate) struct OperationKeys {
    secret: [u8; 32],
}

impl fmt::Debug for OperationKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OperationKeys")
    }
}

impl OperationKeys {
    pub const fn new(secret: [u8; 32]) -> Self {
        Self { secret }
    }

    /// The grant for an operation that a run may start.
    pub fn grant(&self, intent: IntentId) -> OperationGrant {
        self.of(OperationId::for_intent(intent))
    }

    /// The grant that is needed to deliver an operation's result.
    pub fn of(&self, id: OperationId) -> OperationGrant {
        let key = self.mac(id).finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        OperationGrant { id, key, path: format!("/api/v1/resume/{id}") }
    }

    /// Whether a key is the key of this operation.
    pub fn fits(&self, id: OperationId, key: &str) -> bool {
        let bytes: Option<Vec<u8>> =
            (0..key.len()).step_by(2).map(|at| u8::from_str_radix(key.get(at..at + 2)?, 16).ok()).collect();
        bytes.is_some_and(|bytes| self.mac(id).verify_slice(&bytes).is_ok())
    }

    fn mac(&self, id: OperationId) -> Hmac<Sha256> {
        // This HMAC constructor takes a key of a whole block; the secret is padded with zeros.
        let mut block = [0; 64];
        block[..32].copy_from_slice(&self.secret);
        let mut mac = Hmac::<Sha256>::new(&block.into());
        mac.update(id.uuid().as_bytes());
        mac
    }
}

#[cfg(test)]
mod tests {
    use annie_core::ids::{AgentId, TaskId};

    use super::*;

    #[test]
    fn operation_key_fits_only_its_own_operation_and_installation() {
        let task: TaskId = format!("task_{:032}", 0).parse().unwrap();
        let intent = |call: &str| IntentId::for_call(task, &AgentId::orchestrator(), call);
        let keys = OperationKeys::new([1; 32]);
        let (one, two) = (keys.grant(intent("one")), keys.grant(intent("two")));
        assert!(keys.fits(one.id, &one.key));
        assert_eq!(keys.grant(intent("one")), one, "a run that is repeated gets the same key");
        assert_eq!(keys.of(one.id), one);
        assert!(!keys.fits(two.id, &one.key));
        assert!(!OperationKeys::new([2; 32]).fits(one.id, &one.key));
        for bad in ["", "x", "zz", "0", &one.key[..62], &one.key.to_uppercase()[..10], "ääää"] {
            assert!(!keys.fits(one.id, bad), "{bad}");
        }
        assert!(!format!("{one:?} {keys:?}").contains(&one.key));
    }
}
