"""The page that leads from a folder of recordings to an answer, without a terminal.

``folders`` chooses, ``contents`` says what is in a folder, ``work`` where results lie and what became of them,
``jobs`` runs the same commands that one types, ``pages`` opens reviews and reports, ``requests`` and ``window`` put
them together. All there is to know lies in folders: a server that is started again knows what the last one knew.
Nothing here imports torch; the commands do, in processes of their own.
"""
