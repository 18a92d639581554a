/* The segment endpoint behaviour End with NEXT-C-SID ("uN", RFC 9800, 4.1.1), for exercises whose subject is another one. */
#ifndef USID_P4
#define USID_P4

/* Return a uSID carrier without its first uSID: those behind it move up, and zeros follow. */
#define WITHOUT_FIRST_USID(address) (address[127:96] ++ address[79:0] ++ 16w0)

#endif
