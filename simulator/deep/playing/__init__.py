"""When does what happen? Tasks and flows on one clock."""
