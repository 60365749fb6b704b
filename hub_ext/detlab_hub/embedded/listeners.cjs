// Loaded into the Hub's proxy (NODE_OPTIONS) before it starts: it listens with the sockets that the supervisor lends
// it (DETLAB_LISTENERS=PORT=DESCRIPTOR,...) instead of binding those ports itself.
'use strict';
const net = require('node:net');

const pairs = (process.env.DETLAB_LISTENERS || '').split(',').filter(Boolean);
const lent = new Map(pairs.map((pair) => pair.split('=').map(Number)));
delete process.env.DETLAB_LISTENERS;

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...more) {
  const fd = lent.get(port);
  if (fd === undefined) return listen.call(this, port, ...more);
  lent.delete(port);
  return listen.call(this, {fd}, more.find((one) => typeof one === 'function'));
};
