-- The cursor moves when this transaction has committed; a server that answers before its disk has it could lose the
-- rows and not the cursor (INV-5).
select set_config('synchronous_commit', 'on', true)
where current_setting('synchronous_commit') = 'off'
