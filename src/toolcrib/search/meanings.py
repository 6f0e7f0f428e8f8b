"""Words that people use for things that APIs name differently, for searches by what a tool should do."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from toolcrib.search.words import words_of

if TYPE_CHECKING:
    from tantivy import TextAnalyzer

_LONGEST = 3
"""Words of the longest phrase in the table."""
_TABLE = """
make, new, start, open, register, provision, define, write, build : create add
set up, begin, publish, put, enroll, generate, store, save, plan : create add
attach, include, put, let, enter, stick, bring : add
get rid, throw, erase, drop, purge, destroy : delete remove
discard, clear, take off, withdraw, no longer, unsave, wipe : delete remove
detach, unlink, disconnect, take out, take off, kick, expel : remove delete
stop, end, abort, halt, withdraw, interrupt : cancel stop end
switch off, turn off, deactivate, pause : disable
turn on, switch on, activate : enable start
which, all, every, everything, what : list
show, look up, look into, read, details, see : get retrieve fetch
view, display, what, is, download, look : get retrieve fetch
change, edit, rename, modify, correct, adjust, recolor, mark, overwrite, revise, move : update set
find, look for, query : search
check, verify : check verification
accept, consent, sign off, agree : approve approval accept
refuse, reject, turn away, decline, forbid : deny reject restriction
allow, permit, let : permission access allow
forbid, limited, limits, limit, restricted : restriction limit
undelete, recover, undo : restore
invalidate, withdraw : revoke
again, retry, redo, resend : rerun retry rerequest resend
dump, back up : export
autocomplete, suggestion : typeahead
ignore, skip : exclude exclusion exception
company, firm, business, employer, corporate, company-wide : organization org enterprise
person, people, somebody, someone, employee, colleague, individual, customer, account : user member
colleague, participant, take part, belong, player, person : member participant
group, department : team group
myself, who am I, signed in, own profile : authenticated identity me
assistant, AI : agent assistant copilot
supervisor, boss, full control : owner manager
applicant : join request
outsider, outside, visitor : external guest
company, own : custom brand
codebase, repository, repositories, repo : repository repo
ticket, bug : issue
to-do, todo, chore, job : task
sub-ticket, nested : subtask sub-issue parent
board, planning board : project
tag : label
label : tag
remark, annotation : comment
answer, response, discussion : reply comment
callback, hook : webhook
merge proposal, patch, proposal, merge request : pull request
inspection : review
snippet : gist
bookmark, favorite, save, later : star
bookmark : web link
password, credential, token, passcode : secret credential token key
setting, configuration value, environment value : variable configuration setting
CI, continuous integration, pipeline, automation, build job : workflow actions run
build machine, virtual machine, machine : runner machine
pool : group queue
vulnerability, security finding, finding : alert security scanning
leak, leaked : secret scanning
regex, regexes, regular expression : pattern
integration, extension, bot : app application installation
notice, inbox : notification
cloud development environment, development environment : codespace
homework : assignment
marks, score : grade
library : package
version : release version
binary, attachment : asset
ship, shipping, roll out : deployment deploy
website, static website : pages site web
visitor, traffic : referrer traffic view
past, previous, lately, latest : recent history
invite, offer, request to join : invitation invite
category, kind : type
attribute, column, property, metadata attribute : field property metadata
extra, additional : custom
layout, filter : view
row, entry : item
author, identity : author user
provenance : attestation
profile picture, picture, photo : avatar photo icon
biography : profile
phone, dial, ring, speak : call
waiting line, line, wait : queue
meeting : conference
audio, live : stream
chat, conversation, discussion, talk : conversation session chat thread
side discussion : thread
room : channel
server : guild
rank : role
smiley : emoji
thumbs up : reaction
game, matchmaking : lobby
slash, shortcut : command
recurring, calendar, meetup, occurrence : scheduled event
event : webhook event
post, text : message sms
pin, top : pin
animated picture : sticker
bundle : pack
inactive : prune
banned, thrown out, ban, mute : ban block
quiet, do not disturb : dnd disturb
online, away : presence status
mention, handle : usergroup
log, history : log event
findable, visible : discoverability visibility
title : name rename
scope : permission scope
telemetry : event
contact center : flex interaction
form, questionnaire : questionnaire inquiry
transcript analysis, analysis : operator analysis
per second, quota : rate limit
one-time passcode, passcode : otp
regulator, regulatory, regulation : compliance regulatory
proof : document
hosted code, piece of code : function serverless
mobile plan, data plan : sim plan
realtime : sync stream
JSON object, object : document
carrier, SIP line : trunk
device : device factor
revision : version
document : file
folder, directory : folder directory
stamp : watermark
how long, kept : retention
data residency : storage policy
rule : policy
recycle bin, bin : trash
removed : trashed
litigation, lawsuit, freeze : legal hold
choice, possible value : option value
public link, public URL, public : shared link public
ethical wall : information barrier
hierarchical, vocabulary, term : taxonomy node
electronic signature, signature, contract : sign request
due date, deadline : task due
confidentiality : classification
given : assignment
program, collection : portfolio
objective : goal
contribute : supporting relationship
work hours, planned work, capacity : allocation
blueprint : template
blocks, waits, waiting : dependency
hours : timesheet time
billable : time tracking
vacation, absence : ooo leave
color : update
recently, lately : recent
"""
"""In each line words and phrases of people, and after the colon those of tools."""
_EMPTY = (
    "a an and are as at be been but by can did do does for from had has have how i if in into is it its just"
    " my no not now of on or our out same should so some such than that the their them then there these they"
    " this those to up was we were when where who why will with would you your down me off over too us very"
    " right again each more most own only him her his she he"
)


class Meaning(NamedTuple):
    """A word or phrase of a question, by the words that tools may have for it."""

    stems: tuple[str, ...]
    of_phrase: bool
    """True for a phrase of several words, which says more than a word."""


def meanings(question: str) -> list[Meaning]:
    """Return what tools may call the words and phrases of a question, the stem of a word itself first."""
    empty, table = _empty(), _table()
    asked = stemmer().analyze(" ".join(words_of(question)))
    found: dict[tuple[str, ...], Meaning] = {}
    for at in range(len(asked)):
        for length in range(1, _LONGEST + 1):
            phrase = tuple(asked[at : at + length])
            itself = phrase if len(phrase) == length == 1 and phrase[0] not in empty else ()
            stems = tuple(dict.fromkeys((*itself, *table.get(phrase, ()))))
            if stems:
                found[phrase] = Meaning(stems, length > 1)
    return list(found.values())


@cache
def stemmer() -> TextAnalyzer:
    """Return the analyzer that reduces English words to their stems."""
    from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

    builder = TextAnalyzerBuilder(Tokenizer.whitespace()).filter(Filter.lowercase())
    return builder.filter(Filter.stemmer("english")).build()


@cache
def _empty() -> frozenset[str]:
    return frozenset(stemmer().analyze(_EMPTY))


@cache
def _table() -> dict[tuple[str, ...], tuple[str, ...]]:
    table: dict[tuple[str, ...], tuple[str, ...]] = {}
    for line in _TABLE.strip().splitlines():
        people, _, tools = line.partition(" : ")
        for phrase in people.split(","):
            key = tuple(stemmer().analyze(" ".join(words_of(phrase))))
            table[key] = (*table.get(key, ()), *stemmer().analyze(" ".join(words_of(tools))))
    return table
