//! Rows that are copied into a table, in the server's own form.

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::SinkExt as _;
use tokio_postgres::CopyInSink;
use tokio_postgres::types::IsNull;

use super::*;

/// How a copy begins: its signature, no flags, no more of a head.
const HEAD: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// In the place of a row's number of values: there are no more rows.
const END: i16 = -1;
/// In the place of a value's length: it is null.
const NULL: i32 = -1;
/// Bytes that are sent together. The driver's own writer sends each four kilobytes, which costs more than to encode them.
const TOGETHER: usize = 64 * 1024;

impl Session<'_> {
    /// Whether rows can be copied: that takes a prepared statement, which not every pooler keeps.
    pub(crate) fn can_copy(&self) -> bool {
        !self.connector.unprepared.load(Ordering::Relaxed)
    }

    /// Copies rows within a transaction: how many the server took. `sql` has no parameters; `types` are those of its
    /// columns.
    pub(crate) async fn copy<V: ToSql>(
        &mut self,
        operation: &'static str,
        sql: &str,
        types: &[Type],
        rows: impl Iterator<Item = Vec<V>>,
    ) -> Result<u64> {
        let patience = self.connector.patience;
        self.asking = true;
        let answer = tokio::time::timeout(patience, self.send_rows(sql, types, rows)).await;
        self.asking = false;
        match answer {
            Err(_) => {
                self.place.open = None;
                Err(transient(operation, TimedOut(patience)))
            }
            Ok(Err(Broken::Driver(error))) => {
                self.learn(&error);
                Err(translate(operation, error))
            }
            Ok(Err(Broken::Value(error))) => {
                Err(error::fatal(operation, "a value has no form for the server", error))
            }
            Ok(Ok(count)) => Ok(count),
        }
    }

    async fn send_rows<V: ToSql>(
        &mut self,
        sql: &str,
        types: &[Type],
        rows: impl Iterator<Item = Vec<V>>,
    ) -> Result<u64, Broken> {
        let Some(open) = &mut self.place.open else {
            return Err(tokio_postgres::Error::__private_api_timeout().into());
        };
        let statement = open.prepared_one(sql, &[]).await?;
        let mut sink: std::pin::Pin<&mut CopyInSink<Bytes>> =
            std::pin::pin!(open.client.copy_in(&statement).await?);
        let mut form = BytesMut::from(HEAD);
        for row in rows {
            encode(&mut form, types, &row).map_err(Broken::Value)?;
            if form.len() >= TOGETHER {
                sink.send(form.split().freeze()).await?;
            }
        }
        form.put_i16(END);
        sink.send(form.freeze()).await?;
        Ok(sink.finish().await?)
    }
}

/// Why a copy did not come to its end.
enum Broken {
    Driver(tokio_postgres::Error),
    Value(BoxError),
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl From<tokio_postgres::Error> for Broken {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Driver(error)
    }
}

/// A row: how many values, and each after its length.
fn encode<V: ToSql>(form: &mut BytesMut, types: &[Type], row: &[V]) -> Result<(), BoxError> {
    form.put_i16(i16::try_from(row.len())?);
    for (value, kind) in row.iter().zip(types) {
        let at = form.len();
        form.put_i32(NULL);
        if let IsNull::No = value.to_sql_checked(kind, form)? {
            let from = at + size_of::<i32>();
            let length = i32::try_from(form.len() - from)?;
            form[at..from].copy_from_slice(&length.to_be_bytes());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_encoded_as_the_server_reads_it() {
        let mut form = BytesMut::new();
        encode(&mut form, &[Type::TEXT, Type::TEXT], &[Some("ab"), None]).unwrap();
        assert_eq!(&form[..], b"\0\x02\0\0\0\x02ab\xff\xff\xff\xff");
        assert_eq!(HEAD.len(), 19);
    }
}
