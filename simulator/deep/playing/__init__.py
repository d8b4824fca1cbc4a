"""When does each task happen? Tasks and flows on one clock."""
