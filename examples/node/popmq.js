'use strict';
// PopMQ for Node.js, whole: load the contract, connect, and read the details of an error.
// A project of its own copies this file, popmq.proto and google/rpc/status.proto.

const path = require('node:path');
const { promisify } = require('node:util');
const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');

const definition = protoLoader.loadSync(['popmq/v1/popmq.proto', 'google/rpc/status.proto'], {
  includeDirs: [path.join(__dirname, '../../proto'), __dirname],
  longs: Number, // times in ms and offsets stay far below 2^53
  enums: String,
  defaults: true,
});
const { popmq } = grpc.loadPackageDefinition(definition);

/** Every method of a service as a promise with a deadline: `await call.pop({topic, group}, seconds)`. */
function promises(client) {
  const call = {};
  for (const name of Object.keys(client.constructor.service)) {
    const unary = promisify(client[name]).bind(client);
    call[name[0].toLowerCase() + name.slice(1)] = (request, seconds = 10) =>
      unary(request, { deadline: Date.now() + seconds * 1000 });
  }
  return call;
}

function connect(endpoint) {
  const credentials = grpc.credentials.createInsecure();
  const options = { 'grpc.max_receive_message_length': 20 << 20 }; // a Pop may ask for 16 MiB; the default is 4
  const clients = [popmq.v1.Broker, popmq.v1.Admin].map((Service) => new Service(endpoint, credentials, options));
  const [broker, admin] = clients.map(promises);
  return { broker, admin, close: () => clients.forEach((client) => client.close()) };
}

/**
 * The popmq.v1.ErrorInfo of a refused call, or null: when the broker was not reached there is none.
 * It travels as a google.rpc.Status in the trailer `grpc-status-details-bin`.
 */
function errorInfo(error) {
  const [trailer] = error.metadata?.get('grpc-status-details-bin') ?? [];
  if (!trailer) return null;
  const status = definition['google.rpc.Status'].deserialize(trailer);
  const detail = status.details.find((any) => any.type_url === 'type.googleapis.com/popmq.v1.ErrorInfo');
  return detail ? definition['popmq.v1.ErrorInfo'].deserialize(detail.value) : null;
}

/** Calls carry one result for each entry; an entry with an `error` failed alone. */
function orThrow(results) {
  const failed = results.find((result) => result.error);
  if (failed) throw new Error(`${failed.error.code}: ${failed.error.message}`);
  return results;
}

module.exports = { connect, errorInfo, orThrow, grpc };
