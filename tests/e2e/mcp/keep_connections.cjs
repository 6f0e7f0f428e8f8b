// The servers of the public suite close a connection that is idle for 5 s; a busy machine is slower.
const { Server } = require("node:net")
const listen = Server.prototype.listen
Server.prototype.listen = function (...where) {
  this.keepAliveTimeout = 600_000
  return listen.apply(this, where)
}
