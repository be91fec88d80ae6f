//! Tokens.

use async_trait::async_trait;
use stargate_access::tokens::TOUCH_EVERY;
use stargate_access::{Error, Found, NewToken, Result, SecretHash, Token, TokenId, Tokens};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connect::Param;
use super::error::{fatal, transient};
use super::{Postgres, sql};
use crate::repo_rows::{grants, grants_json, life_micros, page, signed, token_error, token_taken};

impl Postgres {
    pub(super) async fn token_rows(
        &self,
        operation: &'static str,
        sql: &'static str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>> {
        let rows = async { self.inner.readers.session().await?.rows(operation, sql, params).await };
        rows.await.map_err(token_error)
    }
}

#[async_trait]
impl Tokens for Postgres {
    async fn add(&self, token: NewToken) -> Result<()> {
        token.check()?;
        let (now, id, hash) =
            (self.inner.clock.for_statement(), token.id.as_str(), &token.hash.as_bytes()[..]);
        let (grants, life) = (grants_json(&token.grants), life_micros(&token));
        let params = [
            (&now as _, Type::TIMESTAMPTZ),
            (&id as _, Type::TEXT),
            (&hash as _, Type::BYTEA),
            (&token.name as _, Type::TEXT),
            (&grants as _, Type::TEXT),
            (&life as _, Type::INT8),
        ];
        let added = self.token_rows("keep the token", sql!("token_insert"), &params).await?;
        if added.is_empty() { Err(token_taken()) } else { Ok(()) }
    }

    async fn list(&self, after: Option<&TokenId>, limit: u32) -> Result<Vec<Token>> {
        let (after, limit) = (after.map_or("", TokenId::as_str), page(limit));
        let params = [(&after as _, Type::TEXT), (&limit as _, Type::INT8)];
        self.token_rows("list tokens", sql!("token_list"), &params).await?.iter().map(read).collect()
    }

    async fn revoke(&self, id: &TokenId) -> Result<bool> {
        let (now, name) = (self.inner.clock.for_statement(), id.as_str());
        let params = [(&now as _, Type::TIMESTAMPTZ), (&name as _, Type::TEXT)];
        let rows = self.token_rows("revoke the token", sql!("token_revoke"), &params).await?;
        match rows.first().map(|row| (row.get::<_, bool>(0), row.get::<_, bool>(1))) {
            Some((true, revoked)) => Ok(revoked),
            _ => Err(Error::NotFound { id: id.to_string() }),
        }
    }

    async fn find(&self, id: &TokenId) -> Result<Found> {
        const OPERATION: &str = "look for the token";
        let (now, name) = (self.inner.clock.for_statement(), id.as_str());
        let params = [(&now as _, Type::TIMESTAMPTZ), (&name as _, Type::TEXT)];
        let rows = self.token_rows(OPERATION, sql!("token_find"), &params).await?;
        let row = rows.first().ok_or_else(|| token_error(transient(OPERATION, "no answer")))?;
        let there = row.get::<_, Option<&str>>(0).is_some();
        Ok(Found { token: there.then(|| read(row)).transpose()?, now: row.get(8) })
    }

    async fn touch(&self, id: &TokenId) -> Result<()> {
        let (now, name) = (self.inner.clock.for_statement(), id.as_str());
        let every = signed(TOUCH_EVERY.as_secs());
        let params = [(&now as _, Type::TIMESTAMPTZ), (&name as _, Type::TEXT), (&every as _, Type::INT8)];
        self.token_rows("note the use of a token", sql!("token_touch"), &params).await.map(drop)
    }

    async fn any(&self) -> Result<bool> {
        let rows = self.token_rows("tell whether there are tokens", sql!("token_any"), &[]).await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }
}

fn read(row: &Row) -> Result<Token> {
    const OPERATION: &str = "read a token";
    const HINT: &str = "a row of stargate.token is damaged";
    let hash: &[u8] = row.get(1);
    let hash = hash.try_into().map_err(|error| token_error(fatal(OPERATION, HINT, error)))?;
    Ok(Token {
        id: row.get::<_, &str>(0).parse()?,
        hash: SecretHash::from_bytes(hash),
        name: row.get(2),
        grants: grants(row.get(3)).map_err(|error| token_error(fatal(OPERATION, HINT, error)))?,
        created_at: row.get(4),
        expires_at: row.get(5),
        last_used_at: row.get(6),
        revoked_at: row.get(7),
    })
}
