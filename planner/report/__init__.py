"""How can an answer be shown to others? As a report: one HTML page with every design, figure and source."""
