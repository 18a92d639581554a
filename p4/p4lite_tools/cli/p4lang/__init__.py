"""Commands under the names that p4lang's programs have, for courses and scripts that call these."""
