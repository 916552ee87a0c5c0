"""Codebases: source trees that are stored once, each in versions that never change, and used by many sandboxes.

```
<home>/codebases/
    cb-…/                       a codebase
        about.json              its name, its owner and which version is current; replaced in one step
        lock                    held by who makes a version current
        versions/3/tree/        a version as a real tree, whose files are links to blobs
        versions/3/manifest.json   what is in it
        pins/                   who uses a version while no process of theirs runs
    blobs/ab/cdef….644.17a…     a file: its SHA-256, its mode and its time
    blobs.lock                  shared by who stores files, held alone by who removes them
    drafts/                     what is being made or removed, each locked by who is at it
    remembered/                 what the files of a directory were like when they were last read
    lock                        held by who gives or takes away a name
```

A version is in use while somebody holds a shared lock on its directory, or has pinned it. A process that is killed
leaves drafts and blobs, which the next one removes, and never a half version.
"""
