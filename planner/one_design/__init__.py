"""What would one given plan cost, take and need? Its figures in full, memory by stage, and what simpler models predict."""
