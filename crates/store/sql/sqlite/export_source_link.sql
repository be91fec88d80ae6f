-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of source_link as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'source', source, 'item', item, 'job_id', job_id, 'stage', stage, 'mark', mark, 'terms', terms
), source, item
from source_link where (source, item) > (coalesce(?1, ''), coalesce(?2, '')) order by source, item limit ?3
