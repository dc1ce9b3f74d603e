//! Documents of skills as their user sees them.

use annie_core::{
    ids::UserId,
    ports::{DocumentHit, DocumentQuery, ExportedDocument, Namespace},
};

use super::{Kernel, KernelError};

impl Kernel {
    /// The documents of a user that match a query.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn documents(
        &self,
        user: &UserId,
        namespace: &'static Namespace,
        query: DocumentQuery,
    ) -> Result<Vec<DocumentHit>, KernelError> {
        Ok(self.wiring.documents.find_documents(user.clone(), namespace, query).await?)
    }

    /// The documents in a user's trash, the last deleted first, at most `limit`.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn deleted_documents(
        &self,
        user: &UserId,
        namespace: &'static Namespace,
        limit: u32,
    ) -> Result<Vec<ExportedDocument>, KernelError> {
        Ok(self.wiring.documents.archived_documents(user.clone(), namespace, limit).await?)
    }
}
