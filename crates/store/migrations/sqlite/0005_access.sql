-- Tokens. id is the public part of a token; of the rest there is only a SHA-256, which is enough for 256 random bits.
-- grants is a list of texts such as write:team/*.
create table token (
    id           text primary key,
    hash         blob not null check (length(hash) = 32),
    name         text not null,
    grants       text not null,
    created_at   integer not null,
    expires_at   integer,
    last_used_at integer,
    revoked_at   integer
) strict, without rowid;
