"""Programs that speak a protocol of their own, and ignore the variables that name a proxy."""

from __future__ import annotations

__all__ = ["DIRECT"]

DIRECT = frozenset((
    "ping", "ping6", "traceroute", "tracepath", "mtr", "nmap", "dig", "host", "nslookup", "drill",
    "whois", "ssh", "scp", "sftp", "ssh-keyscan", "ssh-copy-id", "mosh", "rsync", "telnet", "nc",
    "ncat", "netcat", "socat", "psql", "pg_dump", "pg_dumpall", "pg_restore", "pg_isready", "mysql",
    "mysqldump", "mysqladmin", "mariadb", "mariadb-dump", "mongosh", "mongodump", "mongorestore",
    "redis-cli", "valkey-cli", "sqlcmd", "sqlplus", "mosquitto_pub", "mosquitto_sub", "nats", "kcat",
    "ldapsearch", "snmpget", "snmpwalk", "smbclient", "ntpdate", "sendmail", "iperf3",
))  # fmt: skip
