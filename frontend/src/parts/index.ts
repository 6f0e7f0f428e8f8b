/** The parts that pages are made of. Those that are loaded when needed stand alone. */

export { useAction } from "./action";
export { Code, Value } from "./Code";
export { Decide, Dialog } from "./Dialog";
export { DiffLines } from "./DiffLines";
export { type Finding } from "./Editor";
export { fieldText, readAnswer, readExact, shownExact, writeExact } from "./exact";
export { Check, Choice, chosenAfter, copy, FileField, Form, JsonField, Line, Lines, Send, Tabs } from "./fields";
export { Filters, queryOf, useAddress } from "./Filters";
export { Heading } from "./Heading";
export { plain, readObject } from "./json";
export { JsonLines } from "./JsonLines";
export { announce } from "./notices";
export { Pages, usePages, useSome } from "./Pages";
export { useRead } from "./read";
export { Row } from "./Row";
export { Save } from "./Save";
export { followed, isSchema, type Schema, SchemaTree, typeOf } from "./SchemaTree";
export { SetSecret } from "./SetSecret";
export { Badge, Bullets, Button, Card, type Effect, EffectBadge, Fold, Left, Pairs, Rows, Switch, Until, When } from "./small";
export { Empty, Failure, Loading, Shown } from "./states";
export { Sure } from "./Sure";
export { Table } from "./Table";
export { type Grant, valuesOf, Watched } from "./Watched";
