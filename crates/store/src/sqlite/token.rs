//! Tokens.

use async_trait::async_trait;
use rusqlite::{OptionalExtension as _, Row};
use stargate_access::tokens::TOUCH_EVERY;
use stargate_access::{Error, Found, NewToken, Result, SecretHash, Token, TokenId, Tokens};

use super::Sqlite;
use super::rows::{instant, wrong};
use super::session::sql;
use super::writer::Rank;
use crate::repo_rows::{grants, grants_json, life_micros, page, signed, token_error, token_taken};

#[async_trait]
impl Tokens for Sqlite {
    async fn add(&self, token: NewToken) -> Result<()> {
        token.check()?;
        let added = self
            .writer
            .write(Rank::Normal, "keep the token", move |s| {
                let (hash, grants) = (token.hash.as_bytes(), grants_json(&token.grants));
                let values = (s.now, token.id.as_str(), &hash[..], &token.name, grants, life_micros(&token));
                Ok(s.conn.prepare_cached(sql!("token_insert"))?.exists(values)?)
            })
            .await;
        if added.map_err(token_error)? { Ok(()) } else { Err(token_taken()) }
    }

    async fn list(&self, after: Option<&TokenId>, limit: u32) -> Result<Vec<Token>> {
        let after = after.map(|id| id.as_str().to_owned()).unwrap_or_default();
        let listed = self
            .readers
            .read("list tokens", move |r| {
                let mut list = r.conn.prepare_cached(sql!("token_list"))?;
                let rows = list.query_map((after, page(limit)), read)?;
                Ok(rows.collect::<rusqlite::Result<_>>()?)
            })
            .await;
        listed.map_err(token_error)
    }

    async fn revoke(&self, id: &TokenId) -> Result<bool> {
        let name = id.as_str().to_owned();
        let revoked = self
            .writer
            .write(Rank::Normal, "revoke the token", move |s| {
                let revoked = s.conn.prepare_cached(sql!("token_revoke"))?.exists((s.now, &name))?;
                let there = revoked || s.conn.prepare_cached(sql!("token_find"))?.exists([name])?;
                Ok((there, revoked))
            })
            .await;
        match revoked.map_err(token_error)? {
            (false, _) => Err(Error::NotFound { id: id.to_string() }),
            (true, revoked) => Ok(revoked),
        }
    }

    async fn find(&self, id: &TokenId) -> Result<Found> {
        let id = id.as_str().to_owned();
        let found = self
            .readers
            .read("look for the token", move |r| {
                let token = r.conn.prepare_cached(sql!("token_find"))?.query_row([id], read).optional()?;
                Ok(Found { token, now: instant(r.now) })
            })
            .await;
        found.map_err(token_error)
    }

    async fn touch(&self, id: &TokenId) -> Result<()> {
        let id = id.as_str().to_owned();
        let touched = self
            .writer
            .write(Rank::Normal, "note the use of a token", move |s| {
                s.conn.prepare_cached(sql!("token_touch"))?.execute((
                    s.now,
                    id,
                    signed(TOUCH_EVERY.as_secs()),
                ))?;
                Ok(())
            })
            .await;
        touched.map_err(token_error)
    }

    async fn any(&self) -> Result<bool> {
        let any = self
            .readers
            .read("tell whether there are tokens", |r| {
                Ok(r.conn.prepare_cached(sql!("token_any"))?.query_row([], |row| row.get(0))?)
            })
            .await;
        any.map_err(token_error)
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<Token> {
    let id: String = row.get(0)?;
    let allowed: String = row.get(3)?;
    let time = |column| row.get::<_, Option<i64>>(column).map(|at| at.map(instant));
    let id = id.parse().map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    Ok(Token {
        id,
        hash: SecretHash::from_bytes(row.get(1)?),
        name: row.get(2)?,
        grants: grants(&allowed).map_err(|error| wrong(3, error))?,
        created_at: instant(row.get(4)?),
        expires_at: time(5)?,
        last_used_at: time(6)?,
        revoked_at: time(7)?,
    })
}
