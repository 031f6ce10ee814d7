// What a contestant serves, by Node: node served.js PORT [NAME=MILLISECONDS ...]. Options of the server, and its timeout.
const http = require('node:http');

const body = Buffer.alloc(262144, 'x');
const [port, ...settings] = process.argv.slice(2);
const options = Object.fromEntries(settings.map((setting) => {
  const [name, value] = setting.split('=');
  return [name, Number(value)];
}));
const server = http.createServer(options, (request, response) => {
  request.resume();
  request.on('end', () => {
    response.writeHead(200, { 'Content-Type': 'text/plain', 'Content-Length': body.length });
    response.end(body);
  });
});
if (options.timeout !== undefined) {
  server.timeout = options.timeout;
}
server.listen(Number(port), '127.0.0.1');
