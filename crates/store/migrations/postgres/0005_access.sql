-- Tokens. id is the public part of a token; of the rest there is only a SHA-256, which is enough for 256 random bits.
-- grants is a list of texts such as write:team/*.
create table stargate.token (
    id           text collate "C" primary key,
    hash         bytea not null check (octet_length(hash) = 32),
    name         text not null,
    grants       json not null,
    created_at   timestamptz not null,
    expires_at   timestamptz,
    last_used_at timestamptz,
    revoked_at   timestamptz
);
