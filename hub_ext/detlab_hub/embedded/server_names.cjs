// Loaded into the Hub's proxy (NODE_OPTIONS) before it starts: a server on another node is known by the address to
// which the proxy connects. Node would take the Host of the request for its name, which is what the browser said.
'use strict';
const net = require('node:net');
const tls = require('node:tls');

const connect = tls.connect;
tls.connect = function (options, ...more) {
  if (!options || typeof options !== 'object' || !options.host) return connect.call(this, options, ...more);
  return connect.call(this, {...options, servername: net.isIP(options.host) ? '' : options.host}, ...more);
};
