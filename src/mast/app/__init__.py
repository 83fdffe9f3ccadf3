"""The page that leads from a folder of recordings to an answer, without a terminal.

``folders`` chooses, ``contents`` says what is in a folder, ``work`` where results lie and what state they are in,
``jobs`` runs the same commands that users type, ``pages`` opens reviews and reports, ``requests`` and ``window`` put
them together. All state lies in folders: a server that is started again knows what the last one knew.
Nothing here imports torch; the commands do, in processes of their own.
"""
