-- Nothing is written, whatever the query calls, and all of a page is one snapshot. Texts of times and numbers do not
-- depend on how the server is set up: rows that did not change must look the same, and watermarks must be read back.
begin transaction isolation level repeatable read, read only;
set local time zone 'UTC';
set local datestyle = 'ISO, YMD';
set local intervalstyle = 'iso_8601';
set local bytea_output = 'hex';
set local extra_float_digits = 1;
set local statement_timeout = '{patience_ms}ms'
