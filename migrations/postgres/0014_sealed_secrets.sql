-- Secrets of users and of the installation, sealed with a key that the database does not have. An empty user stands for the
-- installation.
CREATE TABLE sealed_secrets (
    user_id    TEXT   COLLATE "C" NOT NULL,
    name       TEXT   COLLATE "C" NOT NULL,
    key_id     TEXT   COLLATE "C" NOT NULL,
    nonce      BYTEA  NOT NULL,
    sealed     BYTEA  NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (user_id, name)
);
