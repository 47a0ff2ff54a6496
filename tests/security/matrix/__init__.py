"""Who may do what: every API, command, route and path asked by everybody there can be. `test_matrix` says how."""
