"""How each kind of owner is read: a partial struct of its API, with the podsets that it asks for and how it ended.

A file holds the kinds of one family of operators. A form reads what its operator makes pods from, and nothing else; it
says what the object means, never what Fairway wants of it. `fairway.api.owners` has the table of them.
"""
