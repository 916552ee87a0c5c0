"""The programs of a minimal root file system, by name. One that this machine does not have is left out."""

from __future__ import annotations

SHELLS = "sh bash dash"
CORE = """
[ arch b2sum base32 base64 basename basenc cat chgrp chmod chown chroot cksum comm cp csplit cut date dd df dir
dircolors dirname du echo env expand expr factor false fmt fold groups head hostid id install join link ln logname
ls md5sum mkdir mkfifo mknod mktemp mv nice nl nohup nproc numfmt od paste pathchk pinky pr printenv printf ptx pwd
readlink realpath rm rmdir runcon seq sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep sort split
stat stdbuf stty sum sync tac tail tee test timeout touch tr true truncate tsort tty uname unexpand uniq unlink
users vdir wc who whoami yes
"""
TEXT = "grep egrep fgrep sed awk mawk gawk diff cmp diff3 sdiff patch less more file find xargs which tree jq rg"
ARCHIVES = "tar gzip gunzip zcat bzip2 bunzip2 bzcat xz unxz xzcat zstd unzstd zip unzip cpio"
PROCESSES = "ps pgrep pkill pidof top free uptime kill watch setsid flock script renice ionice prlimit taskset"
REST = """
git curl wget openssl clear tput reset infocmp getent getconf iconv locale hostname column rev hexdump xxd strings
ldconfig ldd rsync bc dc time ip busybox
"""

NAMES = tuple(f"{SHELLS} {CORE} {TEXT} {ARCHIVES} {PROCESSES} {REST}".split())

# What of these a kernel of its own may not be able to run, and busybox has as well.
OF_BUSYBOX = ("ls", "stat")

# Looked for here and not on the caller's PATH, which may hold wrappers that work only in the caller's home.
PLACES = ("/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin")

# What is opened by name at run time, so that no program says that it needs it.
LIBRARIES = (
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "libgomp.so.1",
    "libnss_files.so.2",
    "libnss_dns.so.2",
    "libresolv.so.2",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libutil.so.1",
)

DATA = (
    "/usr/lib/locale/C.utf8",
    "/usr/lib/locale/C.UTF-8",
    "/lib/terminfo",
    "/usr/share/terminfo/l",
    "/usr/share/terminfo/x",
    "/usr/share/terminfo/s",
    "/usr/share/terminfo/v",
    "/usr/share/terminfo/d",
    "/usr/share/zoneinfo",
    "/usr/share/git-core/templates",
    "/usr/share/misc/magic.mgc",
    "/usr/lib/file/magic.mgc",
    "/usr/libexec/coreutils",
    "/usr/lib/git-core",
    "/usr/libexec/git-core",
    "/etc/mime.types",
    "/etc/protocols",
    "/etc/services",
    "/etc/ssl/openssl.cnf",
)
"""Files and directories that these read. Nothing of it tells of this host or its users."""
