// Loaded into the Hub's proxy (NODE_OPTIONS) before it starts: a line of its log for which the disk has no room is lost.
// Node would end the proxy.
'use strict';
const fs = require('node:fs');

for (const stream of [process.stdout, process.stderr]) {
  if (stream.constructor.name !== 'SyncWriteStream') continue; // no file
  stream._write = function (chunk, encoding, done) {
    try {
      fs.writeSync(this.fd, chunk);
    } catch {
      // there is nowhere to say it
    }
    done();
  };
}
