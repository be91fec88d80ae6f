-- The time of this transaction, and a row of nulls that tells the types of the table's columns; until the transaction ends
-- nobody changes them. $1 now
select coalesce($1::timestamptz, now()), t.tenant_id, t.project_id, t.directive, t.entity_id, t.hash, t.version, t.body,
       t.created_at, t.updated_at{theirs}
  from (values (1)) one (n)
  left join {table} t on false
