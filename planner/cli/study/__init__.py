"""What do you type for studies that survive crashes? `capplan study`; its commands are grouped by purpose."""
