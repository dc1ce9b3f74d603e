-- Secrets of users and of the installation, sealed with a key that the database does not have. An empty user stands for the
-- installation.
CREATE TABLE sealed_secrets (
    user_id    TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    key_id     TEXT    NOT NULL,
    nonce      BLOB    NOT NULL,
    sealed     BLOB    NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (user_id, name)
) STRICT, WITHOUT ROWID;
