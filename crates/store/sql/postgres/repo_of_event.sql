-- The repository of an event, locked: its events are processed one after the other.
select r.id, r.default_branch, r.default_oid, r.default_event_id, r.default_old_oid
  from stargate.repo r where r.id = (select e.repo_id from stargate.push_event e where e.id = $1::bigint) for no key update
