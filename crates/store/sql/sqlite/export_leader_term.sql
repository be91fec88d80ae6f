-- Only here because a store is moved from SQLite to Postgres and not back.
-- A page of leader_term as JSON with its key. ?1, ?2 the key before it (null: from the beginning), ?3 rows at most
select json_object(
    'epoch', epoch, 'instance', instance, 'address', address, 'began_at', began_at, 'ended_at', ended_at, 'reason', reason
), epoch, null
from leader_term where epoch > coalesce(?1, 0) order by epoch limit ?3
